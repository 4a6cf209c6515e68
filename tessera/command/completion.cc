// SPDX-License-Identifier: Apache-2.0
// After an option that takes one of some words the shell offers these, after any other the names of files; else the
// options of the command. Zsh runs the script of bash.
#include "tessera/command/completion.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "driver/registry.h"
#include "isa/config.h"

namespace tessera {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// The words that may follow an option; none where it takes a file or a number.
std::vector<std::string> values_of(const std::string& option) {
  std::vector<std::string> values;
  if (option == "--device") {
    values.emplace_back("reference");
    for (const auto& backend : driver::backends()) values.push_back(backend.name);
  } else if (option == "--config") {
    for (const auto& config : isa::shipped_configs()) values.emplace_back(config.name);
  } else if (option == "--input-layout") {
    values = {"NHWC", "NCHW"};
  } else if (option == "--calibrate") {
    values = {"random"};
  } else if (option == "--engine") {
    values = {"nncf", "onnxruntime"};
  }
  return values;
}

constexpr const char* kOptionsWithWords[] = {"--device", "--config", "--input-layout", "--calibrate", "--engine"};

/// Options whose parser is not this one: the quantiser's.
std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  std::vector<const CLI::Option*> found;
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional()) found.push_back(option);
  }
  return found;
}

std::vector<std::string> names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options_of(app)) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::string bash(const CLI::App& app) {
  std::string text =
      "_tessera() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W '" +
      joined(commands_of(app)) + " " + joined(names_of(app)) +
      "' -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case $before in\n";
  for (const char* option : kOptionsWithWords)
    text += "    " + std::string(option) + ") words='" + joined(values_of(option)) + "' ;;\n";
  text += "  esac\n  if [[ -z $words && $word == -* ]]; then\n    case ${COMP_WORDS[1]} in\n";
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    text += "      " + command->get_name() + ") words='" + joined(names_of(*command)) + "' ;;\n";
  return text +
         "    esac\n"
         "  fi\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "  if [[ $word != -* ]]; then COMPREPLY+=($(compgen -f -- \"$word\")); fi\n"
         "}\n"
         "complete -o filenames -F _tessera tessera\n";
}

/// A text between the quotes of fish.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out + "'";
}

std::string fish(const CLI::App& app) {
  std::string text;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string& name = command->get_name();
    text += "complete -c tessera -n __fish_use_subcommand -f -a " + name + " -d " + quoted(command->get_description()) +
            "\n";
    for (const CLI::Option* option : options_of(*command)) {
      text += "complete -c tessera -n '__fish_seen_subcommand_from " + name + "'";
      for (const std::string& flag : option->get_lnames()) text += " -l " + flag;
      for (const std::string& flag : option->get_snames()) text += " -s " + flag;
      if (option->get_items_expected_max() > 0) text += " -r";
      for (const std::string& flag : option->get_lnames()) {
        const std::vector<std::string> values = values_of("--" + flag);
        if (!values.empty()) text += " -a " + quoted(joined(values));
      }
      text += " -d " + quoted(option->get_description()) + "\n";
    }
  }
  return text;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return bash(app);
  if (shell == "zsh") return "autoload -U +X bashcompinit && bashcompinit\n" + bash(app);
  if (shell == "fish") return fish(app);
  throw Error(ErrorCode::kInvalidArgument, "completion is there for bash, zsh and fish, not for '" + shell + "'");
}

}  // namespace tessera
