// SPDX-License-Identifier: Apache-2.0
#include "tessera/command/feeds.h"

#include <algorithm>
#include <fstream>

#include "runtime/npy.h"
#include "tessera/command/arguments.h"
#include "tessera/command/random_values.h"
#include "tessera/quantised_for.h"

namespace tessera {
namespace {

/// NHWC (or N..C of any rank) to NCHW.
ops::Tensor to_channels_first(const ops::Tensor& tensor, const std::string& name) {
  if (tensor.rank() < 3)
    refuse("input '" + name + "': layout NHWC needs at least three dimensions, got " + ops::to_string(tensor.shape()));
  const auto rank = static_cast<size_t>(tensor.rank());
  ops::Shape shape = {tensor.shape()[0], tensor.shape()[rank - 1]};
  shape.insert(shape.end(), tensor.shape().begin() + 1, tensor.shape().end() - 1);
  ops::Tensor out(tensor.dtype(), shape);
  const int64_t width = ops::element_bytes(tensor.dtype()), images = shape[0], channels = shape[1];
  int64_t pixels = 1;
  for (size_t i = 2; i < rank; ++i) pixels *= shape[i];
  const std::byte* from = tensor.data();
  std::byte* to = out.mutable_data();
  for (int64_t n = 0; n < images; ++n)
    for (int64_t p = 0; p < pixels; ++p)
      for (int64_t c = 0; c < channels; ++c)
        std::copy_n(from + ((n * pixels + p) * channels + c) * width, width,
                    to + ((n * channels + c) * pixels + p) * width);
  return out;
}

std::string port_list(const std::vector<Port>& ports) {
  std::string text;
  for (const Port& port : ports) text += (text.empty() ? "'" : ", '") + port.name + "'";
  return text;
}

bool is_port(const std::vector<Port>& ports, const std::string& name) {
  return std::any_of(ports.begin(), ports.end(), [&](const Port& port) { return port.name == name; });
}

/// What --input-layout says of each of the inputs `known`: of its own name, or else of all.
std::map<std::string, std::string> layouts_of(const Arguments& a, const std::vector<Port>& known) {
  std::map<std::string, std::string> layouts;
  for (const std::string& text : a.layouts) {
    const size_t equals = text.find('=');
    const std::string name = equals == std::string::npos ? "" : text.substr(0, equals);
    const std::string layout = equals == std::string::npos ? text : text.substr(equals + 1);
    if (layout != "NHWC" && layout != "NCHW") refuse("--input-layout takes NCHW or NHWC, got '" + layout + "'");
    if (equals != std::string::npos && !is_port(known, name))
      refuse("--input-layout: the model has no input '" + name + "'; it takes " + port_list(known));
    for (const Port& port : known)
      if (name.empty() || port.name == name) layouts[port.name] = layout;
  }
  return layouts;
}

/// The two sides of --input NAME=FILE; without a name where the whole text is a file.
std::pair<std::string, std::string> name_and_file(const std::string& text, const std::vector<Port>& ports) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return {"", text};
  const std::string name = text.substr(0, equals);
  if (is_port(ports, name)) return {name, text.substr(equals + 1)};
  if (!std::ifstream(text)) refuse("the model has no input '" + name + "'; it takes " + port_list(ports));
  return {"", text};
}

/// The array of a file for one input: the only one, or that of the input's name.
ops::Tensor one_array(runtime::NamedTensors arrays, const std::string& file, const std::string& name) {
  if (arrays.size() == 1) return std::move(arrays[0].second);
  for (auto& [array, tensor] : arrays) {
    if (array == name) return std::move(tensor);
  }
  refuse("'" + file + "' holds several arrays and none is named '" + name + "'");
}

/// The arrays of one --input, by input. `known`: the inputs (`ports`), and what may be given beside them.
runtime::NamedTensors read_input(const std::string& text, const std::vector<Port>& ports,
                                 const std::vector<Port>& known) {
  const auto [name, file] = name_and_file(text, known);
  runtime::NamedTensors found;
  if (!file.ends_with(".npz")) {
    if (name.empty() && ports.size() != 1)
      refuse("the model has several inputs (" + port_list(ports) + "); give --input NAME=FILE for each");
    found.emplace_back(name.empty() ? ports[0].name : name, runtime::load_npy(file));
    return found;
  }
  auto arrays = runtime::load_npz(file);
  if (!name.empty() || (arrays.size() == 1 && ports.size() == 1 && !is_port(known, arrays[0].first))) {
    found.emplace_back(name.empty() ? ports[0].name : name, one_array(std::move(arrays), file, name));
    return found;
  }
  for (auto& [array, tensor] : arrays) {
    if (is_port(known, array)) found.emplace_back(array, std::move(tensor));
  }
  if (found.empty()) refuse("'" + file + "' has no array named like an input; the model takes " + port_list(ports));
  return found;
}

}  // namespace

NamedValues read_feeds(const Arguments& a, const Session& session, const std::string& path) {
  std::vector<Port> known = session.inputs();
  known.insert(known.end(), session.overridable().begin(), session.overridable().end());
  const auto layouts = layouts_of(a, known);
  NamedValues feeds;
  for (const std::string& text : a.inputs) {
    for (auto& [name, tensor] : read_input(text, session.inputs(), known)) {
      if (const auto layout = layouts.find(name); layout != layouts.end() && layout->second == "NHWC")
        tensor = to_channels_first(tensor, name);
      feeds.emplace_back(name, std::move(tensor));
    }
  }
  if (a.random_seed < 0) return feeds;
  compiler::ImportOptions import = import_options(a);
  for (const auto& [name, value] : feeds) {
    if (value.kind == ops::Value::Kind::kTensor && is_port(session.inputs(), name))
      import.shapes[name] = value.tensor.shape();
  }
  std::vector<Port> missing;
  for (const Port& port : session.inputs()) {
    if (std::none_of(feeds.begin(), feeds.end(), [&](const auto& feed) { return feed.first == port.name; }))
      missing.push_back(port);
  }
  const auto tell = [&](const Port& port, const char* why) {
    if (!a.quiet)
      std::fprintf(stderr, "tessera: input '%s': random values of shape %s%s; use --shape to choose another\n",
                   port.name.c_str(), ops::to_string(port.shape).c_str(), why);
  };
  std::map<std::string, ops::Shape> shapes;
  if (!session.loads_artifact()) {
    const auto model = compiler::ModelSource::from_file(path);
    const auto quantised =
        session.pasts().empty() ? quantised_shapes(model.bytes(), missing, import) : decltype(shapes)();
    for (const auto& [name, shape] : quantised) {
      Port& port =
          *std::find_if(missing.begin(), missing.end(), [&name = name](const Port& p) { return p.name == name; });
      import.shapes[name] = port.shape = shape;
      tell(port, ", with which the model was quantised");
    }
    shapes = shapes_that_fit(model, import, missing);
  }
  uint64_t seed = static_cast<uint64_t>(a.random_seed);
  for (Port& port : missing) {
    if (const auto shape = shapes.find(port.name); shape != shapes.end()) {
      port.shape = shape->second;
      tell(port, "");
    }
    feeds.emplace_back(port.name, random_value(port, ++seed));
  }
  return feeds;
}

}  // namespace tessera
