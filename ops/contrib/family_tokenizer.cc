// SPDX-License-Identifier: Apache-2.0
// Tokenizer of com.microsoft: strings cut into tokens by separators, into what an expression matches, or into
// characters. Exporters of text pipelines write it in front of StringNormalizer and TfIdfVectorizer.
#include "ops/kernels/elementwise_kernel.h"
#include "ops/kernels/regular_expression.h"

namespace tessera::ops {

namespace {

namespace tokenizer {

using Tokens = std::vector<std::u32string>;

/// The attributes, checked.
struct Rules {
  std::vector<RegularExpression> separators, tokens;  // both empty: each character is a token
  size_t shortest = 1;                                // characters of a token
  bool mark = false;
  std::string pad;
};

Rules rules_of(const Node& node) {
  const auto fail = [&](const std::string& message) { node.fail(ErrorCode::kInvalidModel, message); };
  for (const char* name : {"mark", "mincharnum", "pad_value"})
    if (!node.has(name)) fail(std::string("attribute '") + name + "' is missing; give it");
  Rules rules;
  const int64_t shortest = node.get_int("mincharnum", 1);
  if (shortest < 1) fail("attribute 'mincharnum' = " + std::to_string(shortest) + " must be at least 1");
  rules.shortest = static_cast<size_t>(shortest);
  rules.mark = node.get_int("mark", 0) != 0;
  rules.pad = node.get_string("pad_value", "");
  const std::vector<std::string> separators = node.get_strings("separators");
  const std::string expression = node.get_string("tokenexp", "");
  if (separators.empty() && expression.empty()) fail("needs attribute 'separators' or 'tokenexp'");
  if (separators == std::vector<std::string>{""} || (separators.empty() && expression == ".")) {
    if (shortest > 1) fail("attribute 'mincharnum' must be 1 where each character is a token");
    return rules;
  }
  try {
    for (const std::string& separator : separators) rules.separators.emplace_back(separator);
    if (separators.empty()) rules.tokens.emplace_back(expression);
  } catch (const Error& error) {
    node.fail(error.code(), error.what());
  }
  return rules;
}

/// What stands between matches of the separator; nothing of fewer than `shortest` characters. Behind an empty match a
/// character is passed over, as ONNX Runtime does.
void cut(const std::u32string& text, const RegularExpression& separator, size_t shortest, Tokens& into) {
  size_t begin = 0;
  while (begin <= text.size()) {
    const auto match = separator.search(text, begin);
    const size_t end = match ? match->first : text.size();
    if (end - begin >= shortest) into.push_back(text.substr(begin, end - begin));
    if (!match) return;
    begin = match->second > match->first ? match->second : match->first + 1;
  }
}

Tokens tokens_of(const std::u32string& text, const Rules& rules) {
  Tokens tokens;
  if (!rules.separators.empty()) {
    tokens.push_back(text);
    for (const RegularExpression& separator : rules.separators) {
      Tokens parts;
      for (const std::u32string& token : tokens) cut(token, separator, rules.shortest, parts);
      tokens = std::move(parts);
    }
  } else if (rules.tokens.empty()) {
    for (const char32_t c : text) tokens.emplace_back(1, c);
  } else if (text.size() >= rules.shortest) {
    for (size_t from = 0; from <= text.size();) {
      const auto match = rules.tokens[0].search(text, from);
      if (!match) break;
      const size_t length = match->second - match->first;
      if (length >= rules.shortest) tokens.push_back(text.substr(match->first, length));
      from = length >= rules.shortest ? match->second : match->first + 1;
    }
  }
  return tokens;
}

void infer_tokenizer(InferContext& c) {
  const TypeInfo& x = c.input(0);
  kernel::require_type(c.node, x.dtype, kernel::set_of({DType::kString}), "X");
  rules_of(c.node);
  c.outputs[0] = TypeInfo::unranked(DType::kString);
  if (!x.ranked) return;
  if (x.shape.size() != 1 && x.shape.size() != 2)
    c.node.fail(ErrorCode::kInvalidModel, "X must have shape [C] or [N,C], not " + to_string(x.shape));
  Shape shape = x.shape;
  if (!x.is_static()) return;  // the rank depends on whether there are strings
  if (std::find(shape.begin(), shape.end(), 0) != shape.end())
    shape.back() = 0;  // no strings: no dimension for tokens
  else
    shape.push_back(-1);
  c.outputs[0] = TypeInfo::tensor(DType::kString, std::move(shape));
}

void evaluate_tokenizer(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Rules rules = rules_of(c.node);
  const std::vector<std::string>& strings = c.input(0).strings();
  std::vector<Tokens> rows;
  size_t most = 0;
  for (const std::string& text : strings) {
    const std::u32string characters = decode_utf8(text);
    if (std::any_of(characters.begin(), characters.end(), [](char32_t x) { return x >= kRawByte; }))
      c.node.fail(ErrorCode::kInvalidArgument,
                  "string " + std::to_string(rows.size()) + " of X is no UTF-8; encode it");
    rows.push_back(tokens_of(characters, rules));
    most = std::max(most, rows.back().size());
  }
  Shape shape = types[0].shape;
  const size_t width = most == 0 ? 0 : most + (rules.mark ? 2 : 0);
  shape.back() = static_cast<int64_t>(width);
  Tensor out(DType::kString, shape);
  std::vector<std::string> all;
  all.reserve(rows.size() * width);
  for (const Tokens& row : rows) {
    if (width == 0) break;
    if (rules.mark) all.emplace_back("\x02");
    for (const std::u32string& token : row) {
      all.emplace_back();
      for (const char32_t x : token) encode_utf8(x, all.back());
    }
    if (rules.mark) all.emplace_back("\x03");
    all.resize(all.size() + most - row.size(), rules.pad);
  }
  out.mutable_strings() = std::move(all);
  c.outputs[0] = std::move(out);
}

}  // namespace tokenizer

}  // namespace

void register_tokenizer(Registry& registry) {
  kernel::add(registry, "Tokenizer", 1, kernel::kOne, tokenizer::infer_tokenizer, tokenizer::evaluate_tokenizer,
              {"mark", "mincharnum", "pad_value", "separators", "tokenexp"}, kernel::kOne, kMicrosoft);
}

}  // namespace tessera::ops
