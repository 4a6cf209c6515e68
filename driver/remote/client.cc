// SPDX-License-Identifier: Apache-2.0
// A device of another process or machine (docs/remote.md), as a Device: `remote:HOST:PORT`. What needs no answer is
// sent and not waited for; the server tells of it with the next answer.
#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"
#include "driver/backends.h"
#include "driver/registry.h"
#include "driver/remote/messages.h"
#include "driver/remote/transport.h"

namespace tessera::driver {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libtessera_grpc.so";
constexpr const char* kMethod = "/tessera.remote.Devices/Use";

void here() {}

/// Beside the code that this function is part of, where builds, installations and wheels have it.
fs::path find_library() {
  std::error_code error;
  std::vector<fs::path> folders;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&here), &info) != 0 && info.dli_fname != nullptr)
    folders.push_back(fs::path(info.dli_fname).parent_path());
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(program.parent_path());
  for (const fs::path& folder : folders) {
    for (const char* inside : {"tessera", "../lib/tessera", "../tessera"}) {
      const fs::path path = folder / inside / kLibrary;
      if (fs::exists(path, error)) return path;
    }
  }
  throw Error(
      ErrorCode::kUnsupported,
      std::string("device remote: '") + kLibrary +
          "' is not part of this installation; install the package libgrpc++-dev (./dev setup does) and build again");
}

/// Loaded once and kept: gRPC has threads.
const TesseraTransport& transport() {
  static const TesseraTransport* const loaded = [] {
    const fs::path path = find_library();
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      throw Error(ErrorCode::kUnsupported, std::string("device remote: gRPC cannot be loaded: ") + dlerror());
    const auto entry = reinterpret_cast<TesseraTransportEntry>(dlsym(library, "tessera_transport"));
    const TesseraTransport* found = entry == nullptr ? nullptr : entry();
    if (found == nullptr || found->version != TESSERA_TRANSPORT_VERSION)
      throw Error(ErrorCode::kUnsupported, "device remote: '" + path.string() + "' is of another version; build again");
    return found;
  }();
  return *loaded;
}

std::string content_of(const std::string& path, const char* what) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in) throw Error(ErrorCode::kIo, std::string("device remote: cannot read the ") + what + " '" + path + "'");
  return text;
}

/// What a client says of the connection; everything else goes to the server's device.
struct Connection {
  std::string address, roots, token, device;
  bool tls = false;
  double silence = 30, deadline = 0;  // seconds; 0: none
  std::optional<uint64_t> memory;
  std::map<std::string, std::string> others;
};

double seconds_of(const std::string& name, const std::string& text) {
  double seconds = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc{} || end != text.data() + text.size() || !(seconds >= 0 && seconds <= 1e6))
    throw Error(ErrorCode::kInvalidArgument,
                "option of device remote: " + name + " is seconds from 0 (without end) to 1000000, not '" + text + "'");
  return seconds;
}

uint64_t bytes_of(const std::string& text) {
  uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const int shift = unit == "G" ? 30 : unit == "M" ? 20 : unit == "K" ? 10 : unit.empty() ? 0 : -1;
  if (error != std::errc{} || shift < 0 || bytes == 0 || bytes > (UINT64_MAX >> shift))
    throw Error(ErrorCode::kInvalidArgument,
                "option of device remote: memory is bytes, or a number with K, M or G, not '" + text + "'");
  return bytes << shift;
}

bool is_loopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

std::string first_token(const std::string& path) {
  const std::string text = content_of(path, "token file");
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
    if (!line.empty() && line[0] != '#') return line;
    at = end + 1;
  }
  throw Error(ErrorCode::kInvalidArgument, "device remote: the token file '" + path + "' holds no token");
}

Connection connection_of(const std::string& address, const DeviceOptions& options) {
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  if (colon == 0 || port.empty() || port.size() > 5 || !std::all_of(port.begin(), port.end(), ::isdigit) ||
      std::stoul(port) > UINT16_MAX)
    throw Error(
        ErrorCode::kInvalidArgument,
        "device remote is named as remote:HOST:PORT, for example remote:127.0.0.1:9190, not 'remote:" + address + "'");
  Connection connection;
  connection.address = address;
  std::string roots = environment("TESSERA_REMOTE_CA"), tokens = environment("TESSERA_REMOTE_TOKEN_FILE");
  for (const auto& [name, value] : options.backend) {
    if (name == "ca")
      roots = value;
    else if (name == "tls" && (value == "yes" || value == "no"))
      connection.tls = value == "yes";
    else if (name == "token-file")
      tokens = value;
    else if (name == "serves")
      connection.device = value;
    else if (name == "silence")
      connection.silence = seconds_of(name, value);
    else if (name == "deadline")
      connection.deadline = seconds_of(name, value);
    else if (name == "memory")
      connection.memory = bytes_of(value);
    else
      connection.others[name] = value;
  }
  if (!roots.empty()) {
    connection.roots = content_of(roots, "certificate");
    connection.tls = true;
  }
  connection.token = tokens.empty() ? environment("TESSERA_REMOTE_TOKEN") : first_token(tokens);
  if (!connection.tls && !is_loopback(address))
    throw Error(
        ErrorCode::kInvalidArgument,
        "device remote:" + address +
            " is on another machine, which is reached through TLS alone: give the server's certificate with the "
            "device option ca=FILE (or TESSERA_REMOTE_CA), or tls=yes for one that the system trusts");
  return connection;
}

class RemoteDevice final : public Device {
 public:
  RemoteDevice(const isa::MachineConfig& config, const DeviceOptions& options, const std::string& address)
      : config_(config), connection_(connection_of(address, options)), transport_(transport()) {
    isa::validate(config);
    const TesseraStreamOptions stream{connection_.address.c_str(), kMethod,
                                      connection_.tls ? 1 : 0,     connection_.roots.c_str(),
                                      connection_.token.c_str(),   connection_.device.c_str()};
    stream_ = transport_.open(&stream);
    try {
      begin(options);
    } catch (...) {
      transport_.close(stream_);
      throw;
    }
  }

  ~RemoteDevice() override { transport_.close(stream_); }

  const isa::MachineConfig& config() const override { return config_; }
  bool can_profile() const override { return opened_.profiles(); }
  std::string machine() const override { return opened_.device(); }

  uint64_t allocate(uint64_t size_bytes, uint64_t alignment) override {
    const std::lock_guard lock(mutex_);
    remote::Request request;
    request.mutable_allocate()->set_bytes(size_bytes);
    request.mutable_allocate()->set_alignment(alignment);
    send(request);
    return answer(remote::Reply::kAllocated).allocated();
  }

  void free(uint64_t address) override {
    const std::lock_guard lock(mutex_);
    remote::Request request;
    request.set_free(address);
    send(request);
  }

  void write(uint64_t address, std::span<const uint8_t> bytes) override {
    const std::lock_guard lock(mutex_);
    send_bytes(address, bytes);
  }

  void place(uint64_t address, std::span<const uint8_t> bytes) override {
    const std::lock_guard lock(mutex_);
    if (bytes.size() < kLeastContent) return send_bytes(address, bytes);
    remote::Request request;
    remote::Content* content = request.mutable_offer();
    content->set_address(address);
    content->set_bytes(bytes.size());
    content->set_digest(digest(bytes));
    send(request);
    remote::Reply reply = answer(remote::Reply::kOffered);
    if (!reply.offered().challenge().empty()) {
      remote::Request proof;
      proof.set_proof(digest(bytes, reply.offered().challenge()));
      send(proof);
      reply = answer(remote::Reply::kOffered);
    }
    if (reply.offered().placed()) return;
    send_bytes(address, bytes);
    const remote::Content kept = *content;
    *request.mutable_keep() = kept;
    send(request);
  }

  void read(uint64_t address, std::span<uint8_t> bytes) override {
    const std::lock_guard lock(mutex_);
    if (bytes.empty()) return;
    remote::Request request;
    request.mutable_read()->set_address(address);
    request.mutable_read()->set_bytes(bytes.size());
    send(request);
    for (size_t at = 0; at < bytes.size();) {
      const remote::Reply reply = answer(remote::Reply::kData);
      const std::string& piece = reply.data().data();
      if (piece.empty() || piece.size() > bytes.size() - at) broken("too many bytes");
      std::memcpy(bytes.data() + at, piece.data(), piece.size());
      at += piece.size();
    }
  }

  void copy(uint64_t to, uint64_t from, uint64_t size_bytes) override {
    const std::lock_guard lock(mutex_);
    remote::Request request;
    request.mutable_copy()->set_to(to);
    request.mutable_copy()->set_from(from);
    request.mutable_copy()->set_bytes(size_bytes);
    send(request);
  }

  RunReport run(const RunRequest& request) override {
    const std::lock_guard lock(mutex_);
    remote::Request message;
    remote::Run* run = message.mutable_run();
    run->set_program_address(request.program_address);
    run->set_instruction_count(request.instruction_count);
    for (const uint64_t base : request.bases) run->add_bases(base);
    run->set_check_races(request.check_races);
    run->set_check_allocations(request.check_allocations);
    if (request.poison) run->set_poison(*request.poison);
    run->set_profile(request.profile);
    for (const CoreProgram& other : request.others) {
      remote::Core* core = run->add_others();
      core->set_program_address(other.program_address);
      core->set_instruction_count(other.instruction_count);
    }
    send(message);
    std::string bytes;
    for (bool last = false; !last;) {
      const remote::Reply reply = answer(remote::Reply::kReport, &request);
      bytes += reply.report().data();
      last = reply.report().last();
    }
    remote::RunReport report;
    if (!report.ParseFromString(bytes)) broken("a report that cannot be read");
    return to_report(report);
  }

 private:
  std::string who() const { return "device remote:" + connection_.address; }

  [[noreturn]] void broken(const std::string& what) const {
    throw Error(ErrorCode::kIo, who() + " has sent " + what + "; is it a server of tessera?");
  }

  void begin(const DeviceOptions& options) {
    remote::Request request;
    remote::Open* open = request.mutable_open();
    open->set_protocol(kProtocol);
    open->set_version(TESSERA_VERSION);
    open->set_name(config_.name);
    for (const isa::ConfigKey& key : isa::config_keys())
      (*open->mutable_machine())[std::string(key.name)] = key.get(config_);
    for (const auto& [name, value] : connection_.others) (*open->mutable_options())[name] = value;
    if (connection_.memory) open->set_memory_bytes(*connection_.memory);
    if (options.heap_base != DeviceOptions{}.heap_base) open->set_heap_base(options.heap_base);
    if (options.poison_allocations) open->set_poison_allocations(*options.poison_allocations);
    send(request);
    opened_ = answer(remote::Reply::kOpened).opened();
  }

  void send_bytes(uint64_t address, std::span<const uint8_t> bytes) {
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      const auto piece = bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at));
      remote::Request request;
      request.mutable_write()->set_address(address + at);
      request.mutable_write()->set_data(piece.data(), piece.size());
      send(request);
    }
  }

  void send(const remote::Request& request) {
    request.SerializeToString(&buffer_);
    begun_ = std::chrono::steady_clock::now();
    TesseraStatus status{};
    if (transport_.send(stream_, buffer_.data(), buffer_.size(), connection_.silence, &status) != 0) lost(status);
  }

  /// The next reply that is no progress. Errors: what the server says; kIo when the connection is lost, when the reply
  /// is another one, when the server is silent, or after the deadline.
  remote::Reply answer(remote::Reply::KindCase expected, const RunRequest* request = nullptr) {
    for (;;) {
      const void* bytes = nullptr;
      size_t count = 0;
      TesseraStatus status{};
      if (transport_.receive(stream_, &bytes, &count, patience(), &status) != 0) lost(status);
      remote::Reply reply;
      if (!reply.ParseFromArray(bytes, static_cast<int>(count))) broken("a message that cannot be read");
      if (reply.kind_case() == remote::Reply::kProgress) {
        if (request != nullptr && request->progress)
          request->progress(reply.progress().waiting(), reply.progress().instructions());
        continue;
      }
      if (reply.kind_case() == remote::Reply::kFailure) {
        const uint32_t code = std::min(reply.failure().code(), static_cast<uint32_t>(ErrorCode::kInternal));
        throw Error(static_cast<ErrorCode>(code), who() + ": " + reply.failure().text());
      }
      if (reply.kind_case() != expected) broken("another reply than was asked for");
      return reply;
    }
  }

  /// Seconds until silence or the deadline is an error.
  double patience() const {
    if (connection_.deadline == 0) return connection_.silence;
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begun_;
    const double left = std::max(connection_.deadline - passed.count(), 1e-3);
    return connection_.silence == 0 ? left : std::min(left, connection_.silence);
  }

  [[noreturn]] void lost(const TesseraStatus& status) const {
    constexpr int kDeadline = 4, kNotFound = 5, kPermission = 7, kExhausted = 8, kUnimplemented = 12, kUnavailable = 14,
                  kUnauthenticated = 16;
    const std::string cause = status.message;
    switch (status.code) {
      case -1: {
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begun_;
        if (connection_.deadline > 0 && passed.count() >= connection_.deadline * 0.99)
          throw Error(ErrorCode::kIo, who() + ": the deadline of " + format(connection_.deadline) +
                                          " seconds has passed; the device option deadline=SECONDS sets another");
        throw Error(ErrorCode::kIo, who() + " has said nothing for " + format(connection_.silence) +
                                        " seconds; the server or the network is down (device option silence=SECONDS)");
      }
      case kUnauthenticated:
      case kPermission:
        throw Error(ErrorCode::kInvalidArgument,
                    who() + " refuses this client: " + cause +
                        "; the device option token-file=FILE or TESSERA_REMOTE_TOKEN gives it");
      case kNotFound:
        throw Error(ErrorCode::kInvalidArgument, who() + ": " + cause + "; the device option serves=NAME names one");
      case kExhausted: throw Error(ErrorCode::kDoesNotFit, who() + ": " + cause);
      case kDeadline: throw Error(ErrorCode::kDeviceFault, who() + ": " + cause);
      case kUnimplemented:
        throw Error(ErrorCode::kUnsupported, who() + " serves no devices; start it with `tessera serve --device NAME`");
      case kUnavailable:
        if (opened_.version().empty())
          throw Error(ErrorCode::kIo, who() + " cannot be reached: " + cause + "; does `tessera serve` run there" +
                                          (connection_.tls ? " with this certificate?" : ", without TLS?"));
        throw Error(ErrorCode::kIo, who() + " is lost: " + cause + "; open the session again when it runs");
      default: break;
    }
    throw Error(ErrorCode::kIo,
                who() + " has ended the connection" + (cause.empty() ? "" : ": " + cause) + "; open the session again");
  }

  static std::string format(double seconds) {
    std::string text = std::to_string(seconds);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text;
  }

  isa::MachineConfig config_;
  Connection connection_;
  const TesseraTransport& transport_;
  void* stream_ = nullptr;
  std::mutex mutex_;
  remote::Opened opened_;
  std::string buffer_;
  std::chrono::steady_clock::time_point begun_;
};

}  // namespace

std::string remote_library() { return find_library().string(); }

std::unique_ptr<Device> open_remote(const isa::MachineConfig& config, const DeviceOptions& options,
                                    const std::string& address) {
  return std::make_unique<RemoteDevice>(config, options, address);
}

}  // namespace tessera::driver
