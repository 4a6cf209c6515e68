// SPDX-License-Identifier: Apache-2.0
// The .npy header is a Python dictionary literal of three known keys, so it is read by looking for those keys; the .npz
// archive is a zip file, read through its central directory. Element types NumPy lacks (bfloat16, float8, 4-bit) are
// written as the unsigned integers that hold their bits.
#include "runtime/npy.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/error.h"
#include "isa/program/whole_file.h"

namespace tessera::runtime {
namespace {

static_assert(std::endian::native == std::endian::little, "the .npy code assumes a little-endian host");

struct NpyType {
  ops::DType dtype;
  const char* code;  // without byte order
};
constexpr NpyType kTypes[] = {
    {ops::DType::kFloat, "f4"},     {ops::DType::kDouble, "f8"},      {ops::DType::kFloat16, "f2"},
    {ops::DType::kUint8, "u1"},     {ops::DType::kInt8, "i1"},        {ops::DType::kUint16, "u2"},
    {ops::DType::kInt16, "i2"},     {ops::DType::kUint32, "u4"},      {ops::DType::kInt32, "i4"},
    {ops::DType::kUint64, "u8"},    {ops::DType::kInt64, "i8"},       {ops::DType::kBool, "b1"},
    {ops::DType::kComplex64, "c8"}, {ops::DType::kComplex128, "c16"},
};

std::string code_of(ops::DType dtype) {
  for (const NpyType& type : kTypes)
    if (type.dtype == dtype) return type.code;
  const int64_t bytes = ops::element_bytes(dtype);
  return bytes == 2 ? "u2" : "u1";
}

std::string read_file(const std::string& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code))
    throw Error(ErrorCode::kIo, "'" + path + "' is a folder; give a file of arrays (.npy, .npz)");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, "cannot open '" + path + "' for reading");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

template <typename T>
T read_little(const std::string& bytes, size_t at, const std::string& what) {
  if (at > bytes.size() || bytes.size() - at < sizeof(T))
    throw Error(ErrorCode::kInvalidArgument, what + ": the file is truncated");
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

template <typename T>
void append_little(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

/// The text after `'key':` in the header dictionary.
std::string field(const std::string& header, const std::string& key, const std::string& what) {
  size_t at = header.find("'" + key + "'");
  if (at != std::string::npos) at = header.find(':', at);
  if (at == std::string::npos)
    throw Error(ErrorCode::kInvalidArgument, what + ": the .npy header has no '" + key + "'");
  ++at;
  while (at < header.size() && header[at] == ' ') ++at;
  return header.substr(at);
}

ops::Tensor from_fortran(const ops::Tensor& tensor) {
  // The bytes are row-major in the reversed shape.
  ops::Tensor out(tensor.dtype(), tensor.shape());
  const int64_t width = ops::element_bytes(tensor.dtype());
  const ops::Shape& shape = tensor.shape();
  std::vector<int64_t> stride(shape.size());
  int64_t step = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    stride[i] = step;
    step *= shape[i];
  }
  std::vector<int64_t> index(shape.size(), 0);
  std::byte* to = out.mutable_data();
  for (int64_t n = 0; n < tensor.size(); ++n) {
    int64_t from = 0;
    for (size_t i = 0; i < shape.size(); ++i) from += index[i] * stride[i];
    std::memcpy(to + n * width, tensor.data() + from * width, static_cast<size_t>(width));
    for (size_t i = shape.size(); i-- > 0;) {
      if (++index[i] < shape[i]) break;
      index[i] = 0;
    }
  }
  return out;
}

std::string inflate_raw(const char* data, size_t size, size_t expected, const std::string& what) {
  std::string out(expected, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw Error(ErrorCode::kInternal, "zlib does not start");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data));
  stream.avail_in = static_cast<uInt>(size);
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(expected);
  const int status = inflate(&stream, Z_FINISH);
  const size_t produced = stream.total_out;
  inflateEnd(&stream);
  if (status != Z_STREAM_END || produced != expected)
    throw Error(ErrorCode::kInvalidArgument, what + ": the compressed data are damaged");
  return out;
}

std::string deflate_raw(const std::string& data) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw Error(ErrorCode::kInternal, "zlib does not start");
  std::string out(deflateBound(&stream, data.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) throw Error(ErrorCode::kInternal, "zlib cannot compress");
  return out;
}

}  // namespace

ops::Tensor decode_npy(const std::string& bytes, const std::string& what) {
  if (bytes.size() < 10 || bytes.compare(0, 6, "\x93NUMPY") != 0)
    throw Error(ErrorCode::kInvalidArgument, what + ": not a NumPy .npy file");
  const bool wide = bytes[6] >= 2;
  const size_t header_bytes = wide ? read_little<uint32_t>(bytes, 8, what) : read_little<uint16_t>(bytes, 8, what);
  const size_t start = (wide ? 12 : 10) + header_bytes;
  if (start > bytes.size()) throw Error(ErrorCode::kInvalidArgument, what + ": the file is truncated");
  const std::string header = bytes.substr(wide ? 12 : 10, header_bytes);

  const std::string descr = field(header, "descr", what);
  const size_t open = descr.find_first_of("'\"");
  const size_t close = open == 0 ? descr.find(descr[0], 1) : std::string::npos;
  if (close == std::string::npos || close < 3)
    throw Error(ErrorCode::kInvalidArgument, what + ": structured arrays are not supported; save a plain array");
  const std::string type = descr.substr(1, close - 1);
  const std::string code = type.substr(1);
  const auto* known =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const NpyType& t) { return code == t.code; });
  if (known == std::end(kTypes))
    throw Error(ErrorCode::kInvalidArgument,
                what + ": element type '" + type + "' is not supported; convert the array with astype()");
  const bool fortran = field(header, "fortran_order", what).rfind("True", 0) == 0;

  std::string dims = field(header, "shape", what);
  if (dims.empty() || dims[0] != '(' || dims.find(')') == std::string::npos)
    throw Error(ErrorCode::kInvalidArgument, what + ": the .npy header has no shape");
  dims = dims.substr(1, dims.find(')') - 1);
  ops::Shape shape;
  for (size_t i = 0; i < dims.size();) {
    if (std::isdigit(static_cast<unsigned char>(dims[i]))) {
      size_t used = 0;
      int64_t dim = 0;
      try {
        dim = std::stoll(dims.substr(i), &used);
      } catch (const std::exception&) {
        throw Error(ErrorCode::kInvalidArgument, what + ": the shape (" + dims + ") is absurd");
      }
      shape.push_back(dim);
      i += used;
    } else {
      ++i;
    }
  }
  const int64_t count = ops::element_count(shape);
  const int64_t width = ops::element_bytes(known->dtype);
  if (count > static_cast<int64_t>((bytes.size() - start) / static_cast<size_t>(width)))
    throw Error(ErrorCode::kInvalidArgument,
                what + ": the file is shorter than its shape " + ops::to_string(shape) + " says");
  ops::Tensor tensor(known->dtype, shape);
  std::memcpy(tensor.mutable_data(), bytes.data() + start, static_cast<size_t>(tensor.bytes()));
  if (type[0] == '>' && width > 1) {
    std::byte* data = tensor.mutable_data();
    const int64_t unit = code[0] == 'c' ? width / 2 : width;
    for (int64_t i = 0; i < tensor.bytes(); i += unit) std::reverse(data + i, data + i + unit);
  }
  return fortran && shape.size() > 1 ? from_fortran(tensor) : tensor;
}

std::string encode_npy(const ops::Tensor& tensor) {
  if (tensor.dtype() == ops::DType::kString)
    throw Error(ErrorCode::kUnsupported,
                "string tensors cannot be written as .npy; leave this output out with --outputs");
  std::ostringstream header;
  const std::string code = code_of(tensor.dtype());
  header << "{'descr': '" << (ops::element_bytes(tensor.dtype()) > 1 ? '<' : '|') << code
         << "', 'fortran_order': False, 'shape': (";
  for (int64_t dim : tensor.shape()) header << dim << ",";
  header << "), }";
  std::string text = header.str();
  text.append(64 - (10 + text.size() + 1) % 64, ' ');
  text.push_back('\n');
  std::string bytes("\x93NUMPY\x01\x00", 8);
  append_little<uint16_t>(bytes, static_cast<uint16_t>(text.size()));
  bytes += text;
  bytes.append(reinterpret_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes()));
  return bytes;
}

ops::Tensor load_npy(const std::string& path) { return decode_npy(read_file(path), path); }

void save_npy(const std::string& path, const ops::Tensor& tensor) { program::write_whole(path, encode_npy(tensor)); }

NamedTensors load_npz(const std::string& path) {
  const std::string zip = read_file(path);
  size_t end = std::string::npos;
  for (size_t back = 22; back <= zip.size() && back < 22 + 65536; ++back)
    if (zip.compare(zip.size() - back, 4, "PK\x05\x06") == 0) {
      end = zip.size() - back;
      break;
    }
  if (end == std::string::npos) throw Error(ErrorCode::kInvalidArgument, path + ": not a .npz archive");
  uint64_t entries = read_little<uint16_t>(zip, end + 10, path);
  uint64_t at = read_little<uint32_t>(zip, end + 16, path);
  if (at == 0xffffffffU && end >= 20 && zip.compare(end - 20, 4, "PK\x06\x07") == 0) {
    const auto zip64 = read_little<uint64_t>(zip, end - 12, path);
    entries = read_little<uint64_t>(zip, zip64 + 32, path);
    at = read_little<uint64_t>(zip, zip64 + 48, path);
  }
  NamedTensors out;
  for (uint64_t i = 0; i < entries; ++i) {
    if (read_little<uint32_t>(zip, at, path) != 0x02014b50)
      throw Error(ErrorCode::kInvalidArgument, path + ": the archive's directory is damaged");
    const auto method = read_little<uint16_t>(zip, at + 10, path);
    uint64_t packed = read_little<uint32_t>(zip, at + 20, path), full = read_little<uint32_t>(zip, at + 24, path);
    const auto name_bytes = read_little<uint16_t>(zip, at + 28, path);
    const auto extra_bytes = read_little<uint16_t>(zip, at + 30, path);
    const auto comment_bytes = read_little<uint16_t>(zip, at + 32, path);
    uint64_t local = read_little<uint32_t>(zip, at + 42, path);
    read_little<uint8_t>(zip, at + 46 + name_bytes + extra_bytes, path);
    std::string name = zip.substr(at + 46, name_bytes);
    for (size_t e = at + 46 + name_bytes; e + 4 <= at + 46 + name_bytes + extra_bytes;) {
      const auto id = read_little<uint16_t>(zip, e, path), size = read_little<uint16_t>(zip, e + 2, path);
      if (id == 1) {  // zip64 sizes, in this order, each only when its 32-bit field is all ones
        size_t p = e + 4;
        for (uint64_t* value : {&full, &packed, &local})
          if (*value == 0xffffffffU) {
            *value = read_little<uint64_t>(zip, p, path);
            p += 8;
          }
      }
      e += 4 + size;
    }
    const uint64_t data =
        local + 30 + read_little<uint16_t>(zip, local + 26, path) + read_little<uint16_t>(zip, local + 28, path);
    if (data > zip.size() || packed > zip.size() - data)
      throw Error(ErrorCode::kInvalidArgument, path + ": the archive is truncated");
    if (full > (uint64_t{1} << 31) && method != 0)
      throw Error(ErrorCode::kUnsupported,
                  path + ": array '" + name + "' is larger than 2 GiB; save it uncompressed with numpy.savez");
    std::string content;
    if (method == 0)
      content = zip.substr(data, packed);
    else if (method == 8)
      content = inflate_raw(zip.data() + data, packed, full, path + ": array '" + name + "'");
    else
      throw Error(ErrorCode::kUnsupported,
                  path + ": compression method " + std::to_string(method) + " is not supported");
    if (name.size() > 4 && name.ends_with(".npy")) name.resize(name.size() - 4);
    ops::Tensor tensor = decode_npy(content, path + ": array '" + name + "'");
    out.emplace_back(std::move(name), std::move(tensor));
    at += 46 + name_bytes + extra_bytes + comment_bytes;
  }
  return out;
}

void save_npz(const std::string& path, const NamedTensors& tensors) {
  std::string zip, directory;
  for (const auto& [name, tensor] : tensors) {
    const std::string file = name + ".npy", content = encode_npy(tensor);
    if (content.size() >= 0xffffffffULL)
      throw Error(ErrorCode::kUnsupported, path + ": array '" + name + "' is larger than 4 GiB");
    const std::string packed = deflate_raw(content);
    const auto crc = static_cast<uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())));
    const size_t local = zip.size();
    std::string common;  // version, flags, method, time, date, crc, sizes, name length, extra length
    append_little<uint16_t>(common, 20);
    append_little<uint16_t>(common, 0x0800);
    append_little<uint16_t>(common, 8);
    append_little<uint16_t>(common, 0);
    append_little<uint16_t>(common, 0x21);
    append_little<uint32_t>(common, crc);
    append_little<uint32_t>(common, static_cast<uint32_t>(packed.size()));
    append_little<uint32_t>(common, static_cast<uint32_t>(content.size()));
    append_little<uint16_t>(common, static_cast<uint16_t>(file.size()));
    append_little<uint16_t>(common, 0);
    zip += "PK\x03\x04" + common + file + packed;
    directory += "PK\x01\x02";
    append_little<uint16_t>(directory, 20);
    directory += common;
    directory.append(10, '\0');  // comment length, disk, attributes
    append_little<uint32_t>(directory, static_cast<uint32_t>(local));
    directory += file;
  }
  const auto start = static_cast<uint32_t>(zip.size());
  zip += directory;
  zip += "PK\x05\x06";
  append_little<uint32_t>(zip, 0);
  append_little<uint16_t>(zip, static_cast<uint16_t>(tensors.size()));
  append_little<uint16_t>(zip, static_cast<uint16_t>(tensors.size()));
  append_little<uint32_t>(zip, static_cast<uint32_t>(directory.size()));
  append_little<uint32_t>(zip, start);
  append_little<uint16_t>(zip, 0);
  program::write_whole(path, zip);
}

}  // namespace tessera::runtime
