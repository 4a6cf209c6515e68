// SPDX-License-Identifier: Apache-2.0
// Strings: StringNormalizer, StringConcat, StringSplit, RegexFullMatch (ops/kernels/regular_expression.h) and
// TfIdfVectorizer, which also counts integers. Strings are UTF-8; case changes map single code points as Unicode does,
// the same for every locale.
#include <clocale>
#include <cwctype>
#include <unordered_map>

#include "ops/kernels/elementwise_kernel.h"
#include "ops/kernels/regular_expression.h"

namespace tessera::ops {

namespace {

using namespace kernel;

constexpr TypeSet kText = set_of({DType::kString});

// ---------------------------------------------------------------------------------------------- StringNormalizer

/// "NONE", "LOWER" or "UPPER" applied to a UTF-8 string; bytes that are no UTF-8 stay.
std::string change_case(const std::string& text, const std::string& action) {
  if (action == "NONE") return text;
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  std::string out;
  for (const char32_t c : decode_utf8(text)) {
    if (c >= kRawByte) {
      out += static_cast<char>(c - kRawByte);
      continue;
    }
    const wint_t w = static_cast<wint_t>(c);
    if (locale)
      encode_utf8(static_cast<char32_t>(action == "LOWER" ? towlower_l(w, locale) : towupper_l(w, locale)), out);
    else
      encode_utf8(c < 128 ? static_cast<char32_t>(action == "LOWER" ? std::tolower(static_cast<int>(c))
                                                                    : std::toupper(static_cast<int>(c)))
                          : c,
                  out);
  }
  return out;
}

void infer_normalizer(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_type(c.node, in.dtype, kText, "X");
  const std::string action = c.node.get_string("case_change_action", "NONE");
  if (action != "NONE" && action != "LOWER" && action != "UPPER")
    c.node.fail(ErrorCode::kInvalidModel, "case_change_action '" + action + "' is not known");
  c.outputs[0] = TypeInfo::unranked(DType::kString);
  if (!in.ranked) return;
  if (in.shape.size() != 1 && (in.shape.size() != 2 || (in.shape[0] >= 0 && in.shape[0] != 1)))
    c.node.fail(ErrorCode::kInvalidModel, "X must have shape [C] or [1,C], not " + to_string(in.shape));
  Shape shape = in.shape;
  if (shape.size() == 2) shape[0] = 1;
  if (!c.node.get_strings("stopwords").empty() || shape.back() == 0) shape.back() = -1;
  c.outputs[0] = TypeInfo::tensor(DType::kString, std::move(shape));
}

void evaluate_normalizer(EvalContext& c, const std::vector<TypeInfo>& types) {
  const std::string action = c.node.get_string("case_change_action", "NONE");
  const bool sensitive = c.node.get_int("is_case_sensitive", 0) != 0;
  std::set<std::string> stop;
  for (const std::string& word : c.node.get_strings("stopwords"))
    stop.insert(sensitive ? word : change_case(word, "LOWER"));
  std::vector<std::string> kept;
  for (const std::string& word : c.input(0).strings())
    if (stop.count(sensitive ? word : change_case(word, "LOWER")) == 0) kept.push_back(change_case(word, action));
  if (kept.empty()) kept.emplace_back();  // nothing left: one empty string
  Shape shape = types[0].shape;
  shape.back() = static_cast<int64_t>(kept.size());
  Tensor out(DType::kString, shape);
  out.mutable_strings() = std::move(kept);
  c.outputs[0] = std::move(out);
}

// -------------------------------------------------------------------------------------- StringConcat, StringSplit

void evaluate_string_concat(EvalContext& c, const std::vector<TypeInfo>& types) {
  Tensor out(DType::kString, types[0].shape);
  binary_loop(out.shape(), c.input(0).shape(), c.input(1).shape(), elements<std::string>(c.input(0)),
              elements<std::string>(c.input(1)), mutable_elements<std::string>(out),
              [](const std::string& a, const std::string& b) { return a + b; });
  c.outputs[0] = std::move(out);
}

void infer_string_split(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_type(c.node, in.dtype, kText, "X");
  c.outputs[0] = TypeInfo::unranked(DType::kString);
  c.outputs[1] = TypeInfo::unranked(DType::kInt64);
  if (!in.ranked) return;
  c.outputs[1] = TypeInfo::tensor(DType::kInt64, in.shape);
  Shape shape = in.shape;
  shape.push_back(-1);
  c.outputs[0] = TypeInfo::tensor(DType::kString, std::move(shape));
}

/// At most `most` + 1 pieces; an empty delimiter means runs of white space, of which none stands at the ends.
std::vector<std::string> split_text(const std::string& text, const std::string& delimiter, int64_t most) {
  static constexpr const char* kSpace = " \t\n\v\f\r";
  std::vector<std::string> parts;
  if (!delimiter.empty()) {
    size_t at = 0;
    for (size_t next;
         static_cast<int64_t>(parts.size()) < most && (next = text.find(delimiter, at)) != std::string::npos;
         at = next + delimiter.size())
      parts.push_back(text.substr(at, next - at));
    parts.push_back(text.substr(at));
    return parts;
  }
  size_t at = text.find_first_not_of(kSpace);
  while (at != std::string::npos) {
    const size_t end = static_cast<int64_t>(parts.size()) < most ? text.find_first_of(kSpace, at) : std::string::npos;
    if (end == std::string::npos) {
      parts.push_back(text.substr(at));
      break;
    }
    parts.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(kSpace, end);
  }
  return parts;
}

void evaluate_string_split(EvalContext& c, const std::vector<TypeInfo>&) {
  const Tensor& in = c.input(0);
  const std::string delimiter = c.node.get_string("delimiter", "");
  const int64_t most = c.node.has("maxsplit") ? c.node.get_int("maxsplit", 0) : std::numeric_limits<int64_t>::max();
  std::vector<std::vector<std::string>> all;
  size_t longest = 0;
  for (const std::string& text : in.strings()) {
    // An empty string has no pieces, whatever the delimiter.
    all.push_back(text.empty() ? std::vector<std::string>()
                               : split_text(text, delimiter, most < 0 ? std::numeric_limits<int64_t>::max() : most));
    longest = std::max(longest, all.back().size());
  }
  Shape shape = in.shape();
  shape.push_back(static_cast<int64_t>(longest));
  Tensor out(DType::kString, shape), counts(DType::kInt64, in.shape());
  for (size_t i = 0; i < all.size(); ++i) {
    std::copy(all[i].begin(), all[i].end(), mutable_elements<std::string>(out) + i * longest);
    mutable_elements<int64_t>(counts)[i] = static_cast<int64_t>(all[i].size());
  }
  c.outputs[0] = std::move(out);
  c.outputs[1] = std::move(counts);
}

// ------------------------------------------------------------------------------------------------- RegexFullMatch

void infer_regex(InferContext& c) {
  require_type(c.node, c.input(0).dtype, kText, "X");
  if (!c.node.has("pattern")) c.node.fail(ErrorCode::kInvalidModel, "attribute 'pattern' is missing");
  [[maybe_unused]] const RegularExpression checked(c.node.get_string("pattern", ""));  // rejects what is no pattern
  c.outputs[0] = without_constant(c.input(0), DType::kBool);
}

void evaluate_regex(EvalContext& c, const std::vector<TypeInfo>& types) {
  const RegularExpression pattern(c.node.get_string("pattern", ""));
  Tensor out(DType::kBool, types[0].shape);
  for (int64_t i = 0; i < out.size(); ++i)
    mutable_elements<uint8_t>(out)[i] = pattern.matches(elements<std::string>(c.input(0))[i]);
  c.outputs[0] = std::move(out);
}

// ------------------------------------------------------------------------------------------------ TfIdfVectorizer

/// The attributes of TfIdfVectorizer, checked. N-grams of length k stand in pool[counts[k - 1], counts[k]).
struct Vocabulary {
  bool text = false;
  std::vector<std::string> words;  // the pool, integers as decimal text
  std::vector<int64_t> indexes;
  std::vector<float> weights;
  std::unordered_map<std::string, size_t> found;  // n-gram -> its number in the pool
  int64_t shortest, longest, skips, width = 0;
  std::string mode;
};

/// Joins words so that no two different n-grams give the same key.
void append_word(std::string& key, const std::string& word) { key += std::to_string(word.size()) + ":" + word; }

Vocabulary vocabulary_of(const Node& node) {
  Vocabulary v;
  const auto fail = [&](const std::string& message) { node.fail(ErrorCode::kInvalidModel, message); };
  v.mode = node.get_string("mode", "");
  if (v.mode != "TF" && v.mode != "IDF" && v.mode != "TFIDF") fail("mode '" + v.mode + "' is not TF, IDF or TFIDF");
  v.shortest = node.get_int("min_gram_length", 1);
  v.longest = node.get_int("max_gram_length", 1);
  v.skips = node.get_int("max_skip_count", 0);
  if (v.shortest < 1 || v.longest < v.shortest || v.skips < 0)
    fail("min_gram_length, max_gram_length and max_skip_count make no range");
  v.text = node.has("pool_strings");
  if (v.text == node.has("pool_int64s")) fail("needs pool_strings or pool_int64s");
  if (v.text)
    v.words = node.get_strings("pool_strings");
  else
    for (int64_t word : node.get_ints("pool_int64s")) v.words.push_back(std::to_string(word));
  v.indexes = node.get_ints("ngram_indexes");
  v.weights = node.get_floats("weights");
  if (v.indexes.empty()) fail("ngram_indexes is empty");
  if (!v.weights.empty() && v.weights.size() != v.indexes.size())
    fail("there must be one weight for each of ngram_indexes");
  for (int64_t index : v.indexes) {
    if (index < 0 || index >= (int64_t{1} << 31)) fail("an element of ngram_indexes is out of range");
    v.width = std::max(v.width, index + 1);
  }
  const std::vector<int64_t> counts = node.get_ints("ngram_counts");
  if (counts.empty() || counts[0] != 0) fail("ngram_counts must begin with 0");
  size_t number = 0;
  for (size_t k = 0; k < counts.size(); ++k) {
    const int64_t end = k + 1 < counts.size() ? counts[k + 1] : static_cast<int64_t>(v.words.size()),
                  length = static_cast<int64_t>(k) + 1;
    if (counts[k] < 0 || end < counts[k] || end > static_cast<int64_t>(v.words.size()) ||
        (end - counts[k]) % length != 0)
      fail("ngram_counts does not divide the pool");
    for (int64_t at = counts[k]; at < end; at += length, ++number) {
      std::string key;
      for (int64_t i = 0; i < length; ++i) append_word(key, v.words[static_cast<size_t>(at + i)]);
      if (length >= v.shortest && length <= v.longest) v.found.emplace(std::move(key), number);
    }
  }
  if (number != v.indexes.size())
    fail("the pool holds " + std::to_string(number) + " n-grams, ngram_indexes " + std::to_string(v.indexes.size()));
  return v;
}

void infer_tf_idf(InferContext& c) {
  const Vocabulary v = vocabulary_of(c.node);
  const TypeInfo& in = c.input(0);
  require_type(c.node, in.dtype, v.text ? kText : kIndex, "X");
  c.outputs[0] = TypeInfo::unranked(DType::kFloat);
  if (!in.ranked) return;
  if (in.shape.empty() || in.shape.size() > 2)
    c.node.fail(ErrorCode::kInvalidModel, "X must have shape [C] or [N,C], not " + to_string(in.shape));
  Shape shape = in.shape;
  shape.back() = v.width;
  c.outputs[0] = TypeInfo::tensor(DType::kFloat, std::move(shape));
}

void evaluate_tf_idf(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Vocabulary v = vocabulary_of(c.node);
  const Tensor& in = c.input(0);
  std::vector<std::string> words;
  if (v.text)
    words = in.strings();
  else
    for (int64_t word : in.to_int64s()) words.push_back(std::to_string(word));
  const int64_t rows = in.rank() == 2 ? in.shape()[0] : 1, length = in.shape().back();
  Tensor out(DType::kFloat, types[0].shape);
  float* y = mutable_elements<float>(out);
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<int64_t> counts(v.indexes.size(), 0);
    const std::string* line = words.data() + row * length;
    for (int64_t skip = 1; skip <= v.skips + 1 && skip <= std::max<int64_t>(1, length);
         ++skip)  // words of an n-gram stand `skip` apart
      for (int64_t start = 0; start < length; ++start) {
        std::string key;
        for (int64_t n = 1; n <= v.longest && n - 1 <= (length - 1 - start) / skip; ++n) {
          append_word(key, line[start + (n - 1) * skip]);
          if (n < v.shortest || (n == 1 && skip > 1)) continue;  // single words count once, not once for each distance
          if (const auto it = v.found.find(key); it != v.found.end()) ++counts[it->second];
        }
      }
    for (size_t k = 0; k < counts.size(); ++k) {
      if (counts[k] == 0) continue;
      const float weight = v.weights.empty() ? 1.0f : v.weights[k];
      y[row * v.width + v.indexes[k]] = v.mode == "TF"    ? static_cast<float>(counts[k])
                                        : v.mode == "IDF" ? weight
                                                          : static_cast<float>(counts[k]) * weight;
    }
  }
  c.outputs[0] = std::move(out);
}

}  // namespace

void register_text(Registry& r) {
  add(r, "StringNormalizer", 10, kOne, infer_normalizer, evaluate_normalizer,
      {"case_change_action", "is_case_sensitive", "locale", "stopwords"});
  add(r, "StringConcat", 20, kTwo, broadcast_same(kText), evaluate_string_concat);
  add(r, "StringSplit", 20, kOne, infer_string_split, evaluate_string_split, {"delimiter", "maxsplit"}, {2, 2});
  add(r, "RegexFullMatch", 20, kOne, infer_regex, evaluate_regex, {"pattern"});
  add(r, "TfIdfVectorizer", 9, kOne, infer_tf_idf, evaluate_tf_idf,
      {"max_gram_length", "max_skip_count", "min_gram_length", "mode", "ngram_counts", "ngram_indexes", "pool_int64s",
       "pool_strings", "weights"});
}

}  // namespace tessera::ops
