// SPDX-License-Identifier: Apache-2.0
// The report in the browser: one file without references to others. Reports enter (run_report.h), HTML leaves. The page
// itself is made from web/ when Tessera is built.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct NamedReport {
  std::string name;  // as the page calls the run
  std::string json;  // run_report_json
};

/// "resnet8.onnx on npu256 (sysc)". Errors: kInvalidArgument where the text is no report of this version; `from`: what
/// the message calls it.
std::string name_of_report(const std::string& json, const std::string& from);

/// `exploration`: what `tessera explore` wrote, or empty. Errors: kUnsupported when Tessera was built without the page;
/// kInvalidArgument for what is no report and no exploration.
std::string page_html(const std::vector<NamedReport>& runs, const std::string& exploration = "");

/// The page without its data; empty when Tessera was built without it. Defined by what web/build.mjs writes.
std::string_view page_template();

}  // namespace tessera
