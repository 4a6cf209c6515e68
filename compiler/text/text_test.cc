// SPDX-License-Identifier: Apache-2.0
// Tokens, values, lists and fields; what is printed is read back; errors say where and what.
#include "compiler/text/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace tessera::text {
namespace {

template <typename Read>
std::string error_of(std::string_view text, Read&& read) {
  Reader reader(text, "f");
  try {
    read(reader);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(Reader, ReadsTokensInOrder) {
  Reader reader("nest \"a b\" { extent oc=4 oh=-0x10 } // the end\n -> %t.1 @f 1.5e-3", "f");
  reader.expect("nest");
  EXPECT_EQ(reader.string(), "a b");
  reader.expect("{");
  EXPECT_TRUE(reader.accept("extent"));
  std::vector<std::pair<std::string, int64_t>> fields;
  reader.fields([&](const std::string& key) {
    fields.emplace_back(key, reader.integer());
    return true;
  });
  EXPECT_EQ(fields, (std::vector<std::pair<std::string, int64_t>>{{"oc", 4}, {"oh", -16}}));
  reader.expect("}");
  reader.expect("->");
  EXPECT_EQ(reader.symbol('%'), "t.1");
  EXPECT_EQ(reader.symbol('@'), "f");
  EXPECT_FALSE(reader.at_end());
  EXPECT_EQ(reader.number(), 1.5e-3);
  EXPECT_TRUE(reader.at_end());
}

TEST(Reader, WhatIsPrintedIsReadBack) {
  for (const float value : {0.0f, -0.0f, 1.0f, 0.1f, 3.0e-41f, 16777217.0f, std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    const float again = Reader(number(value)).number32();
    EXPECT_EQ(again, value);
    EXPECT_EQ(std::signbit(again), std::signbit(value));
  }
  EXPECT_EQ(Reader(number(0.1)).number(), 0.1);
  EXPECT_TRUE(std::isnan(Reader("nan").number()));
  const std::string odd = std::string("quote \" slash \\ line \n tab \t zero ") + '\0' + " \x7f \xc3\xa9";
  EXPECT_EQ(Reader(quote(odd)).string(), odd);
  const std::vector<uint8_t> bytes{0, 1, 0x7f, 0x80, 0xff};
  EXPECT_EQ(hex(bytes), "\"0x00017f80ff\"");
  EXPECT_EQ(Reader(hex(bytes)).bytes(), bytes);
  for (const int64_t value : {std::numeric_limits<int64_t>::min(), int64_t{-1}, std::numeric_limits<int64_t>::max()})
    EXPECT_EQ(Reader(std::to_string(value)).integer(), value);
  Reader numbers(list(std::vector<int>{3, -4, 5}));
  std::vector<int64_t> read;
  numbers.list("[", "]", ",", [&] { read.push_back(numbers.integer()); });
  EXPECT_EQ(read, (std::vector<int64_t>{3, -4, 5}));
}

TEST(Reader, ErrorsSayWhereAndWhat) {
  EXPECT_EQ(error_of("nest\n  {", [](Reader& r) { r.word(), r.expect("}"); }), "f:2:3: expected '}', found '{'");
  EXPECT_EQ(error_of("", [](Reader& r) { r.word(); }), "f:1:1: expected a word, found the end of the text");
  EXPECT_EQ(error_of("12x", [](Reader& r) { r.integer(); }), "f:1:1: expected an integer, found '12x'");
  EXPECT_EQ(error_of("9223372036854775808", [](Reader& r) { r.integer(); }),
            "f:1:1: expected an integer, found '9223372036854775808'");
  EXPECT_EQ(error_of("300", [](Reader& r) { r.integer(0, 255); }), "f:1:1: 300 is not within 0..255");
  EXPECT_EQ(
      error_of("a=1 b=2",
               [](Reader& r) { r.fields([&](const std::string& key) { return key == "a" && r.integer() == 1; }); }),
      "f:1:5: unknown field 'b'");
  EXPECT_EQ(error_of("[1, 2", [](Reader& r) { r.list("[", "]", ",", [&] { r.integer(); }); }),
            "f:1:6: expected ',', found the end of the text");
  static constexpr std::array<std::string_view, 2> kNames = {"dense", "map"};
  EXPECT_EQ(error_of("dens", [](Reader& r) { r.one_of(kNames, "intrinsic"); }),
            "f:1:1: unknown intrinsic 'dens'; known: dense, map");
  EXPECT_EQ(error_of("maybe", [](Reader& r) { r.boolean(); }), "f:1:1: expected true or false, found 'maybe'");
  EXPECT_EQ(error_of("\"0x0\"", [](Reader& r) { r.bytes(); }), "f:1:1: expected bytes as \"0x...\"");
}

TEST(Reader, AStringMustEndOnItsLine) {
  EXPECT_THROW(Reader("\"open"), Error);
  EXPECT_THROW(Reader("\"open\n\""), Error);
  EXPECT_THROW(Reader("\"\\q\""), Error);
}

TEST(Printer, IndentsBlocks) {
  Printer printer;
  printer.open(Line("nest").word(quote("conv1")).word("dense"));
  printer.line(Line("extent").field("oc", 4).field("raw", true).field("scale", 0.5f).field("scope", "inp"));
  printer.close();
  EXPECT_EQ(printer.take(), "nest \"conv1\" dense {\n  extent oc=4 raw=true scale=0.5 scope=inp\n}\n");
}

}  // namespace
}  // namespace tessera::text
