// SPDX-License-Identifier: Apache-2.0
#include "compiler/cpu/code/code_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace tessera::cpu {
namespace {

namespace fs = std::filesystem;

class CodeCacheTest : public ::testing::Test {
 protected:
  ~CodeCacheTest() override { fs::remove_all(folder_.parent_path()); }

  static program::CpuModule module(uint8_t value, size_t bytes = 1000) {
    program::CpuModule made;
    made.bitcode.assign(bytes, value);
    made.object.assign(2 * bytes, static_cast<uint8_t>(value + 1));
    return made;
  }

  const fs::path folder_ = fs::temp_directory_path() / ("code_cache_test_" + std::to_string(getpid())) / "kept";
  const CodeCache cache_{folder_};
};

TEST_F(CodeCacheTest, FindsWhatWasKept) {
  EXPECT_FALSE(cache_.find("a"));
  cache_.keep("a", module(1));
  EXPECT_EQ(cache_.find("a"), module(1));
  EXPECT_FALSE(cache_.find("b"));
}

TEST_F(CodeCacheTest, KeysTellTheirPartsApart) {
  EXPECT_NE(FileCache::key({"ab", "c"}), FileCache::key({"a", "bc"}));
  EXPECT_EQ(FileCache::key({"ab", "c"}), FileCache::key({"ab", "c"}));
}

TEST_F(CodeCacheTest, ADamagedFileIsNotUsed) {
  cache_.keep("a", module(1));
  const fs::path file = folder_ / "a.code";
  {
    std::fstream change(file, std::ios::in | std::ios::out | std::ios::binary);
    change.seekp(500);
    change.put(77);
  }
  EXPECT_FALSE(cache_.find("a"));
  fs::resize_file(file, 10);
  EXPECT_FALSE(cache_.find("a"));
  cache_.keep("a", module(1));
  EXPECT_EQ(cache_.find("a"), module(1));
}

TEST_F(CodeCacheTest, AFolderThatOthersMayWriteToIsNotUsed) {
  cache_.keep("a", module(1));
  fs::permissions(folder_, fs::perms::others_write, fs::perm_options::add);
  EXPECT_FALSE(cache_.find("a"));
  const CodeCache nowhere{fs::path()};
  nowhere.keep("a", module(1));
  EXPECT_FALSE(nowhere.find("a"));
}

TEST_F(CodeCacheTest, TheOldestGoWhenTheFolderIsFull) {
  const CodeCache small(folder_, 8000);
  const auto now = fs::file_time_type::clock::now();
  small.keep("a", module(1));
  fs::last_write_time(folder_ / "a.code", now - std::chrono::hours(2));
  small.keep("b", module(2));
  fs::last_write_time(folder_ / "b.code", now - std::chrono::hours(3));
  small.keep("c", module(3));
  EXPECT_TRUE(small.find("a") && small.find("c"));
  EXPECT_FALSE(small.find("b"));
}

TEST_F(CodeCacheTest, WritersAtTheSameTimeLeaveWholeFiles) {
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer)
    writers.emplace_back([this] {
      for (int i = 0; i < 50; ++i) {
        cache_.keep("a", module(1));
        const auto found = cache_.find("a");
        EXPECT_TRUE(found == module(1));
      }
    });
  for (std::thread& writer : writers) writer.join();
}

}  // namespace
}  // namespace tessera::cpu
