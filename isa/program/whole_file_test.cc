// SPDX-License-Identifier: Apache-2.0
#include "isa/program/whole_file.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera::program {
namespace {

namespace fs = std::filesystem;

class WholeFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "whole-file-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string content(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(WholeFile, IsWrittenAndWrittenOver) {
  write_whole(folder_ / "a", "first");
  fs::permissions(folder_ / "a", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("a", folder_ / "link");
  write_whole(folder_ / "link", std::string("se\0cond", 7));
  EXPECT_EQ(content(folder_ / "a"), std::string("se\0cond", 7));
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(fs::status(folder_ / "a").permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(files(), 2U);
}

TEST_F(WholeFile, StaysAsItWasWhereThereIsNoRoom) {
  write_whole(folder_ / "a", "first");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(write_whole(folder_ / "a", std::string(100'000, 'x')), Error);
  EXPECT_THROW(write_whole(folder_ / "b", std::string(100'000, 'x')), Error);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(content(folder_ / "a"), "first");
  EXPECT_EQ(files(), 1U);
}

TEST_F(WholeFile, TellsTheCause) {
  for (const auto& [path, cause] :
       {std::pair{folder_ / "none" / "a", "No such file or directory"}, std::pair{folder_, "Is a directory"},
        std::pair{fs::path("/dev/full"), "No space left on device"}}) {
    try {
      write_whole(path, "text");
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_EQ(std::string(error.what()), "cannot write '" + path.string() + "': " + cause);
    }
  }
}

}  // namespace
}  // namespace tessera::program
