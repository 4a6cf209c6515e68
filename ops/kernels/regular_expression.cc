// SPDX-License-Identifier: Apache-2.0
// Parsing of a pattern into a tree, the tree into instructions (repetitions are written out), and the run over a text:
// a list of the program counters that are alive, advanced by one character at a time.
#include "ops/kernels/regular_expression.h"

#include <algorithm>
#include <cwctype>
#include <memory>

#include "base/error.h"

namespace tessera::ops {

namespace {

constexpr size_t kMaxInstructions = 100000;
constexpr int kMaxDepth = 200;
constexpr int64_t kMaxRepeat = 1000;
constexpr char32_t kLast = 0x10ffff;

using Ranges = std::vector<std::pair<char32_t, char32_t>>;
const Ranges kDigits{{'0', '9'}}, kSpaces{{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}},
    kWords{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};

bool is_word(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= 'a' && c <= 'z');
}

/// Everything outside the ranges.
Ranges complement(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end());
  Ranges out;
  char32_t next = 0;
  for (const auto& [low, high] : ranges) {
    if (low > next) out.emplace_back(next, low - 1);
    next = std::max(next, static_cast<char32_t>(high + 1));
  }
  out.emplace_back(next, kRawByte + 0xff);
  return out;
}

struct NamedClass {
  const char32_t* name;
  Ranges ranges;
};
const NamedClass kNamedClasses[] = {
    {U"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
    {U"alpha", {{'A', 'Z'}, {'a', 'z'}}},
    {U"ascii", {{0, 127}}},
    {U"blank", {{'\t', '\t'}, {' ', ' '}}},
    {U"cntrl", {{0, 31}, {127, 127}}},
    {U"digit", kDigits},
    {U"graph", {{'!', '~'}}},
    {U"lower", {{'a', 'z'}}},
    {U"print", {{' ', '~'}}},
    {U"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
    {U"space", {{'\t', '\r'}, {' ', ' '}}},
    {U"upper", {{'A', 'Z'}}},
    {U"word", kWords},
    {U"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}},
};

}  // namespace

std::u32string decode_utf8(std::string_view text) {
  std::u32string out;
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
    const unsigned char first = byte(i);
    const size_t length = first < 0x80                    ? 1
                          : first >= 0xc2 && first < 0xe0 ? 2
                          : first >= 0xe0 && first < 0xf0 ? 3
                          : first >= 0xf0 && first < 0xf5 ? 4
                                                          : 0;
    char32_t c = length == 1 ? first : length == 0 ? 0 : first & (0x7f >> length);
    bool good = length > 0 && i + length <= text.size();
    for (size_t k = 1; good && k < length; ++k) {
      good = (byte(i + k) & 0xc0) == 0x80;
      c = (c << 6) | (byte(i + k) & 0x3f);
    }
    good = good && !(length == 3 && c < 0x800) && !(length == 4 && c < 0x10000) && c <= kLast &&
           !(c >= 0xd800 && c < 0xe000);
    out.push_back(good ? c : kRawByte + first);
    i += good ? length : 1;
  }
  return out;
}

void encode_utf8(char32_t c, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xc0 | (c >> 6)), put(0x80 | (c & 0x3f));
  if (c < 0x10000) return put(0xe0 | (c >> 12)), put(0x80 | ((c >> 6) & 0x3f)), put(0x80 | (c & 0x3f));
  put(0xf0 | (c >> 18)), put(0x80 | ((c >> 12) & 0x3f)), put(0x80 | ((c >> 6) & 0x3f)), put(0x80 | (c & 0x3f));
}

/// Recursive descent over the pattern; emits into the expression.
class PatternParser {
 public:
  PatternParser(RegularExpression& target, const std::string& pattern)
      : target_(target), shown_(pattern), text_(decode_utf8(pattern)) {}

  void run() {
    const std::unique_ptr<Tree> tree = alternation(0);
    if (at_ < text_.size()) fail("has a ')' without '('");
    emit(*tree);
    push({Op::kMatch});
  }

 private:
  using Op = RegularExpression::Op;
  using Assertion = RegularExpression::Assertion;
  struct Tree {
    enum class Kind { kSet, kAssert, kSequence, kAlternatives, kRepeat } kind = Kind::kSequence;
    uint32_t value = 0;            // set or assertion
    int64_t least = 0, most = -1;  // repetition; -1: no end
    std::vector<std::unique_ptr<Tree>> children;
  };
  using Kind = Tree::Kind;
  struct Flags {
    bool folds = false, lines = false, dot_all = false;
  };

  [[noreturn]] void fail(const std::string& message, ErrorCode code = ErrorCode::kInvalidModel) const {
    throw Error(code, "pattern '" + shown_ + "' " + message);
  }
  bool more() const { return at_ < text_.size(); }
  bool take(char32_t c) {
    if (!more() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::unique_ptr<Tree> leaf(Kind kind, uint32_t value) const {
    auto tree = std::make_unique<Tree>();
    tree->kind = kind;
    tree->value = value;
    return tree;
  }
  std::unique_ptr<Tree> set(Ranges ranges, bool negated = false) {
    target_.sets_.push_back({std::move(ranges), negated, flags_.folds});
    return leaf(Kind::kSet, static_cast<uint32_t>(target_.sets_.size() - 1));
  }
  std::unique_ptr<Tree> assertion(Assertion kind) const { return leaf(Kind::kAssert, static_cast<uint32_t>(kind)); }

  std::unique_ptr<Tree> alternation(int depth) {
    if (depth > kMaxDepth) fail("nests too deeply", ErrorCode::kUnsupported);
    const Flags outer = flags_;
    auto tree = std::make_unique<Tree>();
    tree->kind = Kind::kAlternatives;
    do tree->children.push_back(sequence(depth));
    while (take('|'));
    flags_ = outer;  // flags set inside a group end with it
    return tree;
  }

  std::unique_ptr<Tree> sequence(int depth) {
    auto tree = std::make_unique<Tree>();
    while (more() && text_[at_] != '|' && text_[at_] != ')') {
      if (literal_quote(*tree)) continue;
      std::unique_ptr<Tree> item = atom(depth);
      int64_t least, most;
      bool repeated = false;
      while (item && repetition(least, most)) {
        if (repeated) fail("repeats a repetition");
        repeated = true;
        auto loop = std::make_unique<Tree>();
        loop->kind = Kind::kRepeat;
        loop->least = least;
        loop->most = most;
        loop->children.push_back(std::move(item));
        item = std::move(loop);
      }
      if (item) tree->children.push_back(std::move(item));
    }
    return tree;
  }

  /// \Q...\E
  bool literal_quote(Tree& into) {
    if (text_.compare(at_, 2, U"\\Q") != 0) return false;
    const size_t end = std::min(text_.find(U"\\E", at_ + 2), text_.size());
    for (size_t i = at_ + 2; i < end; ++i) into.children.push_back(set({{text_[i], text_[i]}}));
    at_ = std::min(end + 2, text_.size());
    return true;
  }

  bool number(int64_t& value) {
    const size_t first = at_;
    value = 0;
    while (more() && text_[at_] >= '0' && text_[at_] <= '9')
      value = std::min<int64_t>(value * 10 + static_cast<int64_t>(text_[at_++] - '0'), kMaxRepeat + 1);
    return at_ > first;
  }

  /// * + ? {n} {n,} {n,m}, each maybe followed by ? for the lazy form, which matches the same whole texts.
  bool repetition(int64_t& least, int64_t& most) {
    const size_t begin = at_;
    if (take('*'))
      least = 0, most = -1;
    else if (take('+'))
      least = 1, most = -1;
    else if (take('?'))
      least = 0, most = 1;
    else if (take('{')) {
      bool good = number(least);
      most = least;
      if (good && take(',') && !number(most)) most = -1;
      if (!good || !take('}')) {  // a brace that begins no repetition stands for itself
        at_ = begin;
        return false;
      }
      if (least > kMaxRepeat || most > kMaxRepeat || (most >= 0 && most < least)) fail("has a repetition out of range");
    } else {
      return false;
    }
    take('?');
    return true;
  }

  /// One item; null for a group that only sets flags.
  std::unique_ptr<Tree> atom(int depth) {
    const char32_t c = text_[at_++];
    switch (c) {
      case '.': return flags_.dot_all ? set({}, true) : set({{'\n', '\n'}}, true);
      case '^': return assertion(flags_.lines ? Assertion::kLineBegin : Assertion::kTextBegin);
      case '$': return assertion(flags_.lines ? Assertion::kLineEnd : Assertion::kTextEnd);
      case '[': return bracket();
      case '(': return group(depth);
      case '*':
      case '+':
      case '?': fail("repeats nothing");
      case '\\': break;
      default: return set({{c, c}});
    }
    if (!more()) fail("ends with a backslash");
    switch (text_[at_]) {
      case 'A': return ++at_, assertion(Assertion::kTextBegin);
      case 'z': return ++at_, assertion(Assertion::kTextEnd);
      case 'b': return ++at_, assertion(Assertion::kWordEdge);
      case 'B': return ++at_, assertion(Assertion::kNoWordEdge);
      default: return set(escape());
    }
  }

  std::unique_ptr<Tree> group(int depth) {
    const Flags outer = flags_;
    if (take('?')) {
      if (take('P') || (more() && text_[at_] == '<')) {  // (?P<name>...), (?<name>...)
        const size_t end = text_.find(U'>', at_);
        if (!take('<') || end == std::u32string::npos || end == at_) fail("has a malformed group name");
        if (!std::all_of(text_.begin() + static_cast<int64_t>(at_), text_.begin() + static_cast<int64_t>(end), is_word))
          fail("has a malformed group name");
        at_ = end + 1;
      } else {
        bool value = true;
        for (;;) {
          if (!more()) fail("has an unfinished group");
          const char32_t c = text_[at_++];
          if (c == ':') break;
          if (c == ')') return nullptr;  // flags for the rest of the enclosing group
          if (c == '-' && value)
            value = false;
          else if (c == 'i')
            flags_.folds = value;
          else if (c == 'm')
            flags_.lines = value;
          else if (c == 's')
            flags_.dot_all = value;
          else if (c != 'U')
            fail("has an unknown group '(?'");
        }
      }
    }
    std::unique_ptr<Tree> tree = alternation(depth + 1);
    if (!take(')')) fail("has a '(' without ')'");
    flags_ = outer;
    return tree;
  }

  /// What stands after a backslash, as ranges.
  Ranges escape() {
    if (!more()) fail("ends with a backslash");
    const char32_t c = text_[at_++];
    switch (c) {
      case 'd': return kDigits;
      case 'D': return complement(kDigits);
      case 's': return kSpaces;
      case 'S': return complement(kSpaces);
      case 'w': return kWords;
      case 'W': return complement(kWords);
      case 'p':
      case 'P':
        fail("uses a Unicode class (\\p), which is not supported; list the characters instead",
             ErrorCode::kUnsupported);
      case 'C': fail("uses \\C, which is not supported", ErrorCode::kUnsupported);
      default: break;
    }
    const char32_t value = character(c);
    return {{value, value}};
  }

  char32_t character(char32_t c) {
    switch (c) {
      case 'a': return '\a';
      case 'f': return '\f';
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'v': return '\v';
      case 'x': return hexadecimal();
      default: break;
    }
    if (c == '0' ||
        (c >= '1' && c <= '7' && more() && text_[at_] >= '0' && text_[at_] <= '7')) {  // octal, up to three digits
      char32_t value = c - '0';
      for (int digits = 1; digits < 3 && more() && text_[at_] >= '0' && text_[at_] <= '7'; ++digits)
        value = value * 8 + (text_[at_++] - '0');
      return value;
    }
    if (is_word(c) && c != '_') fail("has an unknown escape");
    return c;
  }

  char32_t hexadecimal() {
    const auto digit = [&](char32_t c) -> int {
      if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
      if (c >= 'a' && c <= 'f') return static_cast<int>(c - 'a') + 10;
      return c >= 'A' && c <= 'F' ? static_cast<int>(c - 'A') + 10 : -1;
    };
    const bool braces = take('{');
    char32_t value = 0;
    int digits = 0;
    while (more() && digits < (braces ? 6 : 2) && digit(text_[at_]) >= 0)
      value = value * 16 + static_cast<char32_t>(digit(text_[at_++])), ++digits;
    if ((braces ? digits == 0 || !take('}') : digits != 2) || value > kLast) fail("has a malformed \\x");
    return value;
  }

  std::unique_ptr<Tree> bracket() {
    const bool negated = take('^');
    Ranges ranges;
    for (bool first = true;; first = false) {
      if (!more()) fail("has a '[' without ']'");
      if (!first && take(']')) break;
      if (text_.compare(at_, 2, U"[:") == 0) {
        const size_t end = text_.find(U":]", at_ + 2);
        if (end != std::u32string::npos) {
          const bool out = text_[at_ + 2] == '^';
          const std::u32string name = text_.substr(at_ + 2 + out, end - at_ - 2 - out);
          const auto* known = std::find_if(std::begin(kNamedClasses), std::end(kNamedClasses),
                                           [&](const NamedClass& k) { return name == k.name; });
          if (known == std::end(kNamedClasses)) fail("has an unknown class [:name:]");
          const Ranges found = out ? complement(known->ranges) : known->ranges;
          ranges.insert(ranges.end(), found.begin(), found.end());
          at_ = end + 2;
          continue;
        }
      }
      Ranges low = member();
      if (low.size() == 1 && low[0].first == low[0].second && at_ + 1 < text_.size() && text_[at_] == '-' &&
          text_[at_ + 1] != ']') {
        ++at_;
        const Ranges high = member();
        if (high.size() != 1 || high[0].first != high[0].second || high[0].first < low[0].first)
          fail("has a range that runs backwards");
        low[0].second = high[0].first;
      }
      ranges.insert(ranges.end(), low.begin(), low.end());
    }
    return set(std::move(ranges), negated);
  }

  Ranges member() {
    const char32_t c = text_[at_++];
    if (c == '\\') return escape();
    return {{c, c}};
  }

  uint32_t push(RegularExpression::Instruction instruction) {
    if (target_.program_.size() >= kMaxInstructions) fail("is too large", ErrorCode::kUnsupported);
    target_.program_.push_back(instruction);
    return static_cast<uint32_t>(target_.program_.size() - 1);
  }
  uint32_t here() const { return static_cast<uint32_t>(target_.program_.size()); }

  void emit(const Tree& tree) {
    // Repetitions of nothing leave no instructions but take time as well.
    if (++steps_ > 4 * kMaxInstructions) fail("is too large", ErrorCode::kUnsupported);
    auto& program = target_.program_;
    switch (tree.kind) {
      case Kind::kSet: push({Op::kSet, tree.value}); return;
      case Kind::kAssert: push({Op::kAssert, tree.value}); return;
      case Kind::kSequence:
        for (const auto& child : tree.children) emit(*child);
        return;
      case Kind::kAlternatives: {
        std::vector<uint32_t> ends;
        for (size_t i = 0; i < tree.children.size(); ++i) {
          const bool last = i + 1 == tree.children.size();
          const uint32_t split = last ? 0 : push({Op::kSplit, here() + 1});
          emit(*tree.children[i]);
          if (last) break;
          ends.push_back(push({Op::kJump}));
          program[split].b = here();
        }
        for (uint32_t end : ends) program[end].a = here();
        return;
      }
      case Kind::kRepeat: break;
    }
    for (int64_t i = 0; i < tree.least; ++i) emit(*tree.children[0]);
    if (tree.most < 0) {
      const uint32_t split = push({Op::kSplit, here() + 1});
      emit(*tree.children[0]);
      push({Op::kJump, split});
      program[split].b = here();
      return;
    }
    std::vector<uint32_t> splits;
    for (int64_t i = tree.least; i < tree.most; ++i) {
      splits.push_back(push({Op::kSplit, here() + 1}));
      emit(*tree.children[0]);
    }
    for (uint32_t split : splits) program[split].b = here();
  }

  RegularExpression& target_;
  const std::string& shown_;
  std::u32string text_;
  size_t at_ = 0, steps_ = 0;
  Flags flags_;
};

RegularExpression::RegularExpression(const std::string& pattern) { PatternParser(*this, pattern).run(); }

bool RegularExpression::contains(const Set& set, char32_t c) const {
  const auto in = [&](char32_t x) {
    return std::any_of(set.ranges.begin(), set.ranges.end(),
                       [x](const auto& range) { return x >= range.first && x <= range.second; });
  };
  bool found = in(c);
  if (!found && set.folds && c < kRawByte) {
    static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    const wint_t w = static_cast<wint_t>(c);
    if (locale)
      found = in(static_cast<char32_t>(towlower_l(w, locale))) || in(static_cast<char32_t>(towupper_l(w, locale)));
  }
  return found != set.negated;
}

bool RegularExpression::holds(Assertion assertion, const std::u32string& text, size_t at) const {
  const bool begin = at == 0, end = at == text.size();
  switch (assertion) {
    case Assertion::kTextBegin: return begin;
    case Assertion::kTextEnd: return end;
    case Assertion::kLineBegin: return begin || text[at - 1] == '\n';
    case Assertion::kLineEnd: return end || text[at] == '\n';
    case Assertion::kWordEdge:
    case Assertion::kNoWordEdge: break;
  }
  const bool edge = (!begin && is_word(text[at - 1])) != (!end && is_word(text[at]));
  return edge == (assertion == Assertion::kWordEdge);
}

void RegularExpression::follow(Thread start, const std::u32string& text, size_t at, std::vector<size_t>& seen,
                               std::vector<Thread>& into) const {
  std::vector<uint32_t> pending(1, start.at);
  while (!pending.empty()) {
    const uint32_t pc = pending.back();
    pending.pop_back();
    if (seen[pc] == at) continue;
    seen[pc] = at;
    const Instruction& i = program_[pc];
    switch (i.op) {
      case Op::kJump: pending.push_back(i.a); break;
      case Op::kSplit: pending.push_back(i.b), pending.push_back(i.a); break;
      case Op::kAssert:
        if (holds(static_cast<Assertion>(i.a), text, at)) pending.push_back(pc + 1);
        break;
      case Op::kSet:
      case Op::kMatch: into.push_back({pc, start.begin}); break;
    }
  }
}

bool RegularExpression::matches(std::string_view bytes) const {
  const std::u32string text = decode_utf8(bytes);
  std::vector<size_t> seen(program_.size(), SIZE_MAX);
  std::vector<Thread> alive;
  follow({0, 0}, text, 0, seen, alive);
  for (size_t at = 0; at < text.size(); ++at) {
    std::vector<Thread> next;
    for (const Thread& thread : alive) {
      const Instruction& i = program_[thread.at];
      if (i.op == Op::kSet && contains(sets_[i.a], text[at])) follow({thread.at + 1, 0}, text, at + 1, seen, next);
    }
    alive = std::move(next);
    if (alive.empty()) return false;
  }
  return std::any_of(alive.begin(), alive.end(), [&](const Thread& t) { return program_[t.at].op == Op::kMatch; });
}

std::optional<std::pair<size_t, size_t>> RegularExpression::search(const std::u32string& text, size_t from) const {
  std::vector<size_t> seen(program_.size(), SIZE_MAX);
  std::vector<Thread> alive;  // in ascending order of their beginnings
  std::optional<std::pair<size_t, size_t>> found;
  for (size_t at = from; at <= text.size(); ++at) {
    if (!found) follow({0, at}, text, at, seen, alive);
    std::vector<Thread> next;
    for (const Thread& thread : alive) {
      if (found && thread.begin > found->first) break;
      const Instruction& i = program_[thread.at];
      if (i.op == Op::kMatch)
        found = {thread.begin, at};
      else if (at < text.size() && contains(sets_[i.a], text[at]))
        follow({thread.at + 1, thread.begin}, text, at + 1, seen, next);
    }
    alive = std::move(next);
    if (found && alive.empty()) break;
  }
  return found;
}

}  // namespace tessera::ops
