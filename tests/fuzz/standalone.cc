// SPDX-License-Identifier: Apache-2.0
// Drives a fuzzer without libFuzzer, for builds by any compiler: the short run of `./dev test`, and the replay of a
// file. Enters: --runs N --seed S --seconds T --folder D and files or folders of inputs. Each input is a drawn file, or
// one of the last that were made, after one to four mutations; no feedback steers it, so a seed gives the same inputs
// everywhere. Leaves: the number of inputs; a finding's input in D/finding-TARGET. An input that takes longer than ten
// seconds, or asks for more than four gigabytes, is a finding.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/fuzz.h"

extern "C" __attribute__((weak)) int LLVMFuzzerInitialize(int* count, char*** words);

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

constexpr unsigned kSecondsAnInput = 10;
constexpr rlim_t kMemoryBytes = rlim_t{4} << 30;
constexpr size_t kLargestInput = size_t{1} << 20;
constexpr size_t kRemembered = 64;

tessera::fuzz::Random mutations(1);
const uint8_t* running = nullptr;  // the input of the moment
size_t running_size = 0;
char finding_path[4096];

void keep_input(int signal) {
  const int file = open(finding_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file >= 0) {
    size_t done = 0;
    while (done < running_size) {
      const ssize_t count = write(file, running + done, running_size - done);
      if (count <= 0) break;
      done += static_cast<size_t>(count);
    }
    close(file);
  }
  const char* what =
      signal == SIGALRM ? "finding: the input takes too long; it stands in " : "finding: its input stands in ";
  for (const char* part : {what, static_cast<const char*>(finding_path), "\n"}) {
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  ::signal(SIGABRT, SIG_DFL);
  abort();
}

Bytes read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

struct Options {
  uint64_t runs = 0, seed = 1, seconds = 0;
  fs::path folder = ".";
  std::vector<Bytes> inputs;
};

void add_inputs(Options& options, const fs::path& path) {
  if (!fs::is_directory(path)) {
    options.inputs.push_back(read_file(path));
    return;
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) options.inputs.push_back(read_file(file));
}

Options parse(int count, char** words) {
  Options options;
  for (int k = 1; k < count; ++k) {
    const std::string word = words[k];
    const auto number = [&] { return k + 1 < count ? std::strtoull(words[++k], nullptr, 10) : 0; };
    if (word == "--runs") {
      options.runs = number();
    } else if (word == "--seed") {
      options.seed = number();
    } else if (word == "--seconds") {
      options.seconds = number();
    } else if (word == "--folder" && k + 1 < count) {
      options.folder = words[++k];
    } else {
      add_inputs(options, word);
    }
  }
  return options;
}

void run(const Bytes& input) {
  // A copy of exactly its size, so that what reads beyond it meets the allocator's guard.
  const Bytes exact(input.begin(), input.end());
  running = exact.data();
  running_size = exact.size();
  alarm(kSecondsAnInput);
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  alarm(0);
}

void guard(const Options& options, const std::string& target) {
  fs::create_directories(options.folder);
  std::snprintf(finding_path, sizeof finding_path, "%s", (options.folder / ("finding-" + target)).c_str());
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM}) ::signal(signal, keep_input);
#if !defined(__SANITIZE_ADDRESS__)
  const rlimit limit{kMemoryBytes, kMemoryBytes};
  setrlimit(RLIMIT_DATA, &limit);  // not what is shared, as a card's memory is
#endif
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t limit) {
  auto& random = mutations;
  if (size == 0) {
    if (limit == 0) return 0;
    data[0] = static_cast<uint8_t>(random.bits());
    return 1;
  }
  const size_t at = random.below(size);
  switch (random.below(6)) {
    case 0: data[at] ^= static_cast<uint8_t>(1u << random.below(8)); return size;
    case 1: data[at] = static_cast<uint8_t>(random.bits()); return size;
    case 2: {  // a stretch goes
      const size_t gone = 1 + random.below(std::min<size_t>(size - at, 8));
      std::memmove(data + at, data + at + gone, size - at - gone);
      return size - gone;
    }
    case 3: {  // a stretch comes
      const size_t more = std::min<size_t>(1 + random.below(8), limit - size);
      std::memmove(data + at + more, data + at, size - at);
      for (size_t k = 0; k < more; ++k) data[at + k] = static_cast<uint8_t>(random.bits());
      return size + more;
    }
    case 4: {  // a stretch is copied to another place
      const size_t from = random.below(size), count = 1 + random.below(std::min(size - std::max(at, from), size_t{16}));
      std::memmove(data + at, data + from, count);
      return size;
    }
    default: {  // a number of up to eight bytes
      const size_t width = std::min<size_t>(size_t{1} << random.below(4), size - at);
      const int64_t value = random.integer(0);
      std::memcpy(data + at, &value, width);
      return size;
    }
  }
}

int main(int count, char** words) {
  Options options = parse(count, words);
  const std::string target = fs::path(words[0]).filename();
  if (LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&count, &words);
  guard(options, target);
  std::printf("%s: %zu files, seed %llu\n", target.c_str(), options.inputs.size(),
              static_cast<unsigned long long>(options.seed));
  std::fflush(stdout);
  uint64_t done = 0;
  for (const Bytes& input : options.inputs) {
    run(input);
    ++done;
  }
  if (options.inputs.empty()) options.inputs.emplace_back();
  mutations = tessera::fuzz::Random(options.seed);
  tessera::fuzz::Random random(options.seed + 1);
  std::deque<Bytes> made;
  const time_t begin = time(nullptr);
  for (uint64_t n = 0; n < options.runs; ++n) {
    if (options.seconds != 0 && static_cast<uint64_t>(time(nullptr) - begin) >= options.seconds) break;
    Bytes input = !made.empty() && random.chance(30) ? made[random.below(made.size())] : random.of(options.inputs);
    const size_t size = input.size();
    input.resize(std::max(kLargestInput, size));
    size_t now = size;
    for (size_t k = 1 + random.below(4); k > 0; --k) {
      now = LLVMFuzzerCustomMutator(input.data(), now, input.size(), static_cast<unsigned>(random.bits()));
    }
    input.resize(now);
    run(input);
    ++done;
    made.push_back(std::move(input));
    if (made.size() > kRemembered) made.pop_front();
  }
  std::printf("%s: %llu inputs, no finding\n", target.c_str(), static_cast<unsigned long long>(done));
  return 0;
}
