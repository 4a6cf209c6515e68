// SPDX-License-Identifier: Apache-2.0
// Messages are one line of UTF-8.
#include "tessera/message.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Message, IsOneLine) {
  EXPECT_EQ(one_line("node 'conv1': plain"), "node 'conv1': plain");
  EXPECT_EQ(one_line("a\nb\tc\x7f" + std::string(1, '\0')), "a\\nb\\x09c\\x7f\\x00");
}

TEST(Message, IsUtf8) {
  EXPECT_EQ(one_line("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"), "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(one_line("\xff"), "\\xff");
  EXPECT_EQ(one_line("cut \xe2\x82"), "cut \\xe2\\x82");
  EXPECT_EQ(one_line("\xc0\x80"), "\\xc0\\x80");                    // longer than needed
  EXPECT_EQ(one_line("\xe0\x80\x80"), "\\xe0\\x80\\x80");           // the same in three bytes
  EXPECT_EQ(one_line("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // half of a pair
  EXPECT_EQ(one_line("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");  // beyond the last character
}

}  // namespace
}  // namespace tessera
