// SPDX-License-Identifier: Apache-2.0
// The data stand in a script element of type application/json; "<" is written as an escape, so that no text of a model
// ends the element.
#include "tessera/report/page.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tessera/report/run_report.h"

namespace tessera {

namespace {

constexpr std::string_view kMarker = "/*DATA*/";

std::string inside_script(const std::string& json) {
  std::string out;
  out.reserve(json.size() + 64);
  for (const char c : json) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

void check_exploration(const std::string& text) {
  const nlohmann::json found = nlohmann::json::parse(text, nullptr, false);
  if (!found.is_object() || !found.contains("schema") || found["schema"] != "tessera.explore/1")
    throw Error(ErrorCode::kInvalidArgument,
                "this is no exploration of this version; `tessera explore -o FILE` writes one for --explore");
}

}  // namespace

std::string name_of_report(const std::string& json, const std::string& from) {
  check_report(json, from);
  const nlohmann::json report = nlohmann::json::parse(json);
  const std::string model = report["model"].value("name", "");
  return (model.empty() ? "model" : model) + " on " + report.value("config", "no machine") + " (" +
         report.value("device", "") + ")";
}

std::string page_html(const std::vector<NamedReport>& runs, const std::string& exploration) {
  const std::string_view page = page_template();
  const size_t at = page.find(kMarker);
  if (at == std::string_view::npos)
    throw Error(
        ErrorCode::kUnsupported,
        "this build has no page for the browser, because Node.js and its packages were missing when it was made; "
        "`./dev setup` installs them, then build again (--json works without)");
  std::string html(page.substr(0, at));
  html += "{\"runs\": [";
  for (size_t i = 0; i < runs.size(); ++i) {
    check_report(runs[i].json, "'" + runs[i].name + "'");
    html += (i ? ",\n" : "\n") + ("{\"name\": " + inside_script(nlohmann::json(runs[i].name).dump())) +
            ", \"report\": " + inside_script(runs[i].json) + "}";
  }
  html += "]";
  if (!exploration.empty()) {
    check_exploration(exploration);
    html += ",\n\"explore\": " + inside_script(exploration);
  }
  html += "}";
  html += page.substr(at + kMarker.size());
  return html;
}

}  // namespace tessera
