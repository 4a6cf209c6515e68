// SPDX-License-Identifier: Apache-2.0
// The library that XRT 2.13 loads in its hw_emu place, as $XILINX_XRT/lib/libxrt_hwemu.so.2. Enters: the calls that
// libxrt_coreutil makes of a card. Leaves: the answers of the simulated board (board.h), reached through the socket
// that TESSERA_BOARD names; each open handle is one connection. Buffers have a host side in this process and a device
// side in the board's memory, and only xclSyncBO moves bytes between them, as DMA does. XRT's own objects for systems
// and devices come from the shipped libxrt_hwemu.a, which this library is linked with; what they call of a simulator is
// here. No exception leaves a function. Public XRT headers only, and four names of libxrt_coreutil, declared below.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "driver/xrt_emu/protocol.h"
#include "ert.h"
#include "xclbin.h"
#include "xrt.h"

namespace xrt_core {
class device {
 public:
  void register_axlf(const axlf* image);
};
std::shared_ptr<device> get_userpf_device(void* handle);
std::shared_ptr<device> get_userpf_device(void* handle, unsigned int index);
namespace query {
enum class key_type;
}
}  // namespace xrt_core

// Called by the device object of libxrt_hwemu.a for queries of the original simulator; 0 is "no such feature".
namespace xclhwemhal2 {
class HwEmShim {
 public:
  static HwEmShim* handleCheck(void* handle);
  int deviceQuery(xrt_core::query::key_type key);
};
HwEmShim* HwEmShim::handleCheck(void* /*handle*/) { return nullptr; }
int HwEmShim::deviceQuery(xrt_core::query::key_type /*key*/) { return 0; }
}  // namespace xclhwemhal2

namespace {

namespace emu = tessera::driver::emu;

constexpr size_t kPageBytes = 4096;
constexpr uint32_t kUnitRange = 0x1000;

static_assert(emu::kStartUnit == ERT_START_CU && emu::kAbortCommand == ERT_ABORT);
static_assert(emu::kStateCompleted == ERT_CMD_STATE_COMPLETED && emu::kStateError == ERT_CMD_STATE_ERROR &&
              emu::kStateAborted == ERT_CMD_STATE_ABORT);

void complain(const std::string& what) { std::fprintf(stderr, "tessera board: %s\n", what.c_str()); }

size_t whole_pages(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

struct Buffer {
  void* host = nullptr;
  size_t bytes = 0;
  bool own = false;  // the host side is this library's mapping
  unsigned flags = 0;
  uint64_t address = 0;  // 0: no device side
};

struct Bank {
  uint64_t base = 0, bytes = 0;
};

/// One open handle.
class Card {
 public:
  ~Card() {
    for (auto& [handle, buffer] : buffers_) release(buffer);
    for (const int fd : {socket_, memory_, completions_}) {
      if (fd >= 0) close(fd);
    }
  }

  /// False, with a line on standard error, when the board does not answer.
  bool open(unsigned index) {
    const char* path = std::getenv(emu::kBoardVariable);
    if (path == nullptr) {
      complain(std::string(emu::kBoardVariable) + " is not set; start programs through 'tessera board -- COMMAND'");
      return false;
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (socket_ < 0 || connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      complain("no board listens at '" + std::string(path) + "': " + std::strerror(errno));
      return false;
    }
    if (!greet()) {
      complain("the board at '" + std::string(path) + "' is of another version");
      return false;
    }
    device_ = xrt_core::get_userpf_device(this, index);  // enters the handle in XRT's table
    return true;
  }

  /// Sends a request, with an optional payload, and waits for its reply. Leaves an errno value.
  int call(emu::Request request, emu::Reply& reply, const std::vector<uint8_t>& payload = {}) {
    request.payload_bytes = static_cast<uint32_t>(payload.size());
    std::vector<uint8_t> message(sizeof request + payload.size());
    if (message.size() > emu::kMaxMessageBytes) return E2BIG;
    std::memcpy(message.data(), &request, sizeof request);
    if (!payload.empty()) std::memcpy(message.data() + sizeof request, payload.data(), payload.size());
    const std::lock_guard lock(socket_mutex_);
    ssize_t count = send(socket_, message.data(), message.size(), MSG_NOSIGNAL);
    while (count >= 0) {
      count =
          recv(socket_, &reply, sizeof reply, 0);  // NOLINT(clang-analyzer-unix.BlockInCriticalSection): one at a time
      if (count == sizeof reply) {
        reply.message.back() = '\0';
        return reply.error;
      }
      if (count < 0 && errno == EINTR) {
        count = 0;
        continue;
      }
      break;
    }
    return ENODEV;  // the board has gone
  }

  int load(const axlf* image);
  int context(emu::Op op, unsigned unit, bool shared) {
    emu::Request request;
    request.op = op;
    request.unit = unit;
    request.shared = shared ? 1 : 0;
    emu::Reply reply;
    return call(request, reply);
  }

  xclBufferHandle allocate(void* user, size_t bytes, unsigned flags);
  void free(xclBufferHandle handle);
  /// A copy of what is known of a buffer; host == nullptr for an unknown handle.
  Buffer find(xclBufferHandle handle) {
    const std::lock_guard lock(mutex_);
    const auto found = buffers_.find(handle);
    return found == buffers_.end() ? Buffer{} : found->second;
  }
  /// Moves bytes between the host and the card's memory. Leaves an errno value.
  int transfer(bool to_card, uint64_t address, void* host, size_t bytes) const;
  int access(emu::Op op, uint32_t unit, uint32_t offset, uint32_t* value) {
    emu::Request request;
    request.op = op;
    request.unit = unit;
    request.offset = offset;
    request.value = *value;
    emu::Reply reply;
    const int error = call(request, reply);
    if (op == emu::Op::kReadRegister) *value = reply.value;
    return error;
  }
  /// The unit whose registers hold this address, and the offset there.
  bool locate(uint64_t address, uint32_t* unit, uint32_t* offset) const {
    for (size_t u = 0; u < units_.size(); ++u) {
      if (address < units_[u] || address - units_[u] >= kUnitRange) continue;
      *unit = static_cast<uint32_t>(u);
      *offset = static_cast<uint32_t>(address - units_[u]);
      return true;
    }
    return false;
  }
  int execute(xclBufferHandle handle);
  int wait(int milliseconds);
  uint64_t memory_bytes() const { return memory_bytes_; }
  uint32_t clock_mhz() const { return clock_mhz_; }
  size_t banks() const { return banks_.size(); }

 private:
  bool greet();
  void release(const Buffer& buffer) {
    if (buffer.own) munmap(buffer.host, whole_pages(buffer.bytes));
  }
  void set_state(xclBufferHandle handle, uint32_t state) {
    const Buffer buffer = find(handle);
    if (buffer.host == nullptr) return;
    auto* packet = static_cast<ert_packet*>(buffer.host);
    const uint32_t header = packet->header;
    __atomic_store_n(&packet->header, (header & ~uint32_t{0xf}) | state, __ATOMIC_RELEASE);
  }

  int socket_ = -1, memory_ = -1, completions_ = -1;
  uint64_t memory_base_ = 0, memory_bytes_ = 0;
  uint32_t clock_mhz_ = 0;
  std::mutex socket_mutex_;  // one request at a time
  std::mutex mutex_;         // what follows
  std::map<xclBufferHandle, Buffer> buffers_;
  xclBufferHandle next_ = 1;
  std::vector<Bank> banks_;
  std::vector<uint64_t> units_;  // base addresses, in XRT's order
  std::mutex wait_mutex_;
  bool lost_ = false;
  std::vector<xclBufferHandle> running_;
  std::shared_ptr<xrt_core::device> device_;
};

bool Card::greet() {
  emu::Greeting greeting;
  iovec data{&greeting, sizeof greeting};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket_, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof greeting)) return false;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_len != CMSG_LEN(2 * sizeof(int))) return false;
  int passed[2];
  std::memcpy(passed, CMSG_DATA(header), sizeof passed);
  memory_ = passed[0];
  completions_ = passed[1];
  memory_base_ = greeting.memory_base;
  memory_bytes_ = greeting.memory_bytes;
  clock_mhz_ = greeting.clock_mhz;
  return greeting.version == emu::kProtocolVersion;
}

int Card::load(const axlf* image) {
  const auto* bytes = reinterpret_cast<const char*>(image);
  const auto section = [&](axlf_section_kind kind) { return xclbin::get_axlf_section(image, kind); };
  const axlf_section_header* text = section(BITSTREAM);
  const axlf_section_header* topology = section(MEM_TOPOLOGY);
  const axlf_section_header* layout = section(IP_LAYOUT);
  if (text == nullptr || topology == nullptr || layout == nullptr) {
    complain(
        "the xclbin is not made for the simulated board (no image, banks or units); tessera board --write-xclbin makes "
        "one");
    return EINVAL;
  }
  std::vector<Bank> banks;
  const auto* memories = reinterpret_cast<const mem_topology*>(bytes + topology->m_sectionOffset);
  for (int b = 0; b < memories->m_count; ++b) {
    const mem_data& bank = memories->m_mem_data[b];
    banks.push_back({bank.m_base_address, bank.m_used != 0 ? bank.m_size * 1024 : 0});
    if (bank.m_used != 0 && (bank.m_base_address != memory_base_ || bank.m_size * 1024 != memory_bytes_)) return EINVAL;
  }
  std::vector<uint64_t> units;
  const auto* ips = reinterpret_cast<const ip_layout*>(bytes + layout->m_sectionOffset);
  for (int i = 0; i < ips->m_count; ++i) {
    if (ips->m_ip_data[i].m_type == IP_KERNEL) units.push_back(ips->m_ip_data[i].m_base_address);
  }
  std::sort(units.begin(), units.end());
  emu::Image described;
  std::memcpy(described.uuid.data(), image->m_header.uuid, described.uuid.size());
  described.units = static_cast<uint32_t>(units.size());
  described.text_bytes = static_cast<uint32_t>(text->m_sectionSize);
  std::vector<uint8_t> payload(sizeof described + text->m_sectionSize);
  std::memcpy(payload.data(), &described, sizeof described);
  std::memcpy(payload.data() + sizeof described, bytes + text->m_sectionOffset, text->m_sectionSize);
  emu::Request request;
  request.op = emu::Op::kProgram;
  emu::Reply reply;
  if (const int error = call(request, reply, payload)) {
    if (error != EBUSY) complain(std::string("the board cannot be programmed: ") + reply.message.data());
    return error;
  }
  {
    const std::lock_guard lock(mutex_);
    banks_ = std::move(banks);
    units_ = std::move(units);
  }
  xrt_core::get_userpf_device(this)->register_axlf(image);
  return 0;
}

xclBufferHandle Card::allocate(void* user, size_t bytes, unsigned flags) {
  Buffer buffer;
  buffer.host = user;
  buffer.bytes = bytes;
  buffer.flags = flags;
  if ((flags & (XCL_BO_FLAGS_EXECBUF | XCL_BO_FLAGS_HOST_ONLY)) == 0) {
    const unsigned bank = flags & XRT_BO_FLAGS_MEMIDX_MASK;
    emu::Request request;
    request.op = emu::Op::kAllocate;
    request.bank = bank;
    request.size = std::max<size_t>(bytes, 1);
    {
      const std::lock_guard lock(mutex_);
      if (bank >= banks_.size() || banks_[bank].bytes == 0) {
        errno = EINVAL;
        return XRT_NULL_BO;
      }
    }
    emu::Reply reply;
    if (const int error = call(request, reply)) {
      errno = error;
      return XRT_NULL_BO;
    }
    buffer.address = reply.address;
  } else if ((flags & XCL_BO_FLAGS_HOST_ONLY) != 0) {
    errno = ENOTSUP;  // the card has no window into the host's memory
    return XRT_NULL_BO;
  }
  if (user == nullptr) {
    buffer.host = mmap(nullptr, whole_pages(std::max<size_t>(bytes, 1)), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    buffer.own = true;
    if (buffer.host == MAP_FAILED) {
      if (buffer.address != 0) {
        emu::Request request;
        request.op = emu::Op::kFree;
        request.address = buffer.address;
        emu::Reply reply;
        call(request, reply);
      }
      errno = ENOMEM;
      return XRT_NULL_BO;
    }
  }
  const std::lock_guard lock(mutex_);
  buffers_[next_] = buffer;
  return next_++;
}

void Card::free(xclBufferHandle handle) {
  Buffer buffer;
  {
    const std::lock_guard lock(mutex_);
    const auto found = buffers_.find(handle);
    if (found == buffers_.end()) return;
    buffer = found->second;
    buffers_.erase(found);
  }
  if (buffer.address != 0) {
    emu::Request request;
    request.op = emu::Op::kFree;
    request.address = buffer.address;
    emu::Reply reply;
    call(request, reply);
  }
  release(buffer);
}

int Card::transfer(bool to_card, uint64_t address, void* host, size_t bytes) const {
  if (address < memory_base_ || bytes > memory_bytes_ || address - memory_base_ > memory_bytes_ - bytes) return EINVAL;
  auto* at = static_cast<uint8_t*>(host);
  auto offset = static_cast<off_t>(address - memory_base_);
  while (bytes > 0) {
    const ssize_t count = to_card ? pwrite(memory_, at, bytes, offset) : pread(memory_, at, bytes, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return EIO;
    at += count;
    offset += count;
    bytes -= static_cast<size_t>(count);
  }
  return 0;
}

int Card::execute(xclBufferHandle handle) {
  const Buffer buffer = find(handle);
  if (buffer.host == nullptr || buffer.bytes < sizeof(ert_packet)) return EINVAL;
  auto* packet = static_cast<ert_packet*>(buffer.host);
  emu::Request request;
  emu::Reply reply;
  {
    const std::lock_guard lock(mutex_);
    running_.push_back(handle);
  }
  int error = 0;
  if (packet->opcode == ERT_START_CU) {
    const size_t bytes = 4 * (1 + packet->count);
    std::vector<uint8_t> payload(std::min(bytes, buffer.bytes));
    std::memcpy(payload.data(), packet, payload.size());
    request.op = emu::Op::kExecute;
    request.id = handle;
    error = bytes > buffer.bytes ? EINVAL : call(request, reply, payload);
  } else if (packet->opcode == ERT_ABORT) {
    request.op = emu::Op::kAbort;
    request.id = static_cast<xclBufferHandle>(reinterpret_cast<ert_abort_cmd*>(packet)->exec_bo_handle);
    error = call(request, reply);
    if (error == 0) set_state(handle, emu::kStateCompleted);
  } else {
    error = ENOTSUP;
  }
  if (error != 0 || packet->opcode == ERT_ABORT) {
    const std::lock_guard lock(mutex_);
    std::erase(running_, handle);
  }
  return error;
}

/// 1 when a command has ended, 0 after the time. A board that has gone ends every command with an error.
int Card::wait(int milliseconds) {
  const std::lock_guard lock(wait_mutex_);
  pollfd watched{completions_, POLLIN, 0};
  if (!lost_ && poll(&watched, 1, milliseconds) <= 0) return 0;
  int ended = 0;
  for (;;) {
    emu::Completion completion;
    const ssize_t count = lost_ ? 0 : recv(completions_, &completion, sizeof completion, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count != static_cast<ssize_t>(sizeof completion)) {
      lost_ = true;
      std::vector<xclBufferHandle> orphans;
      {
        const std::lock_guard buffers(mutex_);
        orphans.swap(running_);
      }
      if (orphans.empty()) usleep(static_cast<useconds_t>(std::min(milliseconds, 20)) * 1000);
      for (const xclBufferHandle handle : orphans) set_state(handle, emu::kStateError);
      return 1;
    }
    {
      const std::lock_guard buffers(mutex_);
      std::erase(running_, static_cast<xclBufferHandle>(completion.id));
    }
    set_state(static_cast<xclBufferHandle>(completion.id), completion.state);
    ended = 1;
  }
  return ended;
}

Card* card(xclDeviceHandle handle) { return static_cast<Card*>(handle); }

}  // namespace

extern "C" {

unsigned xclProbe() { return std::getenv(emu::kBoardVariable) == nullptr ? 0 : 1; }

xclDeviceHandle xclOpen(unsigned index, const char* /*unused*/, xclVerbosityLevel /*unused*/) {
  try {
    if (index != 0) return nullptr;
    auto opened = std::make_unique<Card>();
    return opened->open(index) ? opened.release() : nullptr;
  } catch (const std::exception& e) {
    complain(e.what());
    return nullptr;
  }
}

void xclClose(xclDeviceHandle handle) { delete card(handle); }

int xclGetDeviceInfo2(xclDeviceHandle handle, xclDeviceInfo2* info) {
  *info = {};
  info->mMagic = 0x586C0C6C;
  std::strcpy(info->mName, "tessera_simulated_board");
  info->mHALMajorVersion = 2;
  info->mHALMinorVersion = 1;
  info->mDDRSize = card(handle)->memory_bytes();
  info->mDataAlignment = kPageBytes;
  info->mMinTransferSize = 64;
  info->mDDRBankCount = static_cast<unsigned short>(card(handle)->banks());
  info->mOCLFrequency[0] = static_cast<unsigned short>(card(handle)->clock_mhz());
  info->mNumClocks = 1;
  return 0;
}

int xclLoadXclBin(xclDeviceHandle handle, const axlf* image) {
  try {
    return -card(handle)->load(image);
  } catch (const std::exception& e) {
    complain(e.what());
    return -EINVAL;
  }
}

int xclOpenContext(xclDeviceHandle handle, const xuid_t /*image*/, unsigned unit, bool shared) {
  return -card(handle)->context(emu::Op::kOpenContext, unit, shared);
}
int xclCloseContext(xclDeviceHandle handle, const xuid_t /*image*/, unsigned unit) {
  card(handle)->context(emu::Op::kCloseContext, unit, false);
  return 0;  // XRT closes contexts in destructors; one of a board that has gone is closed
}

xclBufferHandle xclAllocBO(xclDeviceHandle handle, size_t bytes, int /*unused*/, unsigned flags) {
  return card(handle)->allocate(nullptr, bytes, flags);
}
xclBufferHandle xclAllocUserPtrBO(xclDeviceHandle handle, void* user, size_t bytes, unsigned flags) {
  return card(handle)->allocate(user, bytes, flags);
}
void xclFreeBO(xclDeviceHandle handle, xclBufferHandle buffer) { card(handle)->free(buffer); }
void* xclMapBO(xclDeviceHandle handle, xclBufferHandle buffer, bool /*write*/) {
  return card(handle)->find(buffer).host;
}
int xclUnmapBO(xclDeviceHandle /*handle*/, xclBufferHandle /*buffer*/, void* /*address*/) { return 0; }

int xclSyncBO(xclDeviceHandle handle, xclBufferHandle buffer, xclBOSyncDirection direction, size_t bytes,
              size_t offset) {
  const Buffer known = card(handle)->find(buffer);
  if (known.host == nullptr || known.address == 0 || bytes > known.bytes || offset > known.bytes - bytes)
    return -EINVAL;
  return -card(handle)->transfer(direction == XCL_BO_SYNC_BO_TO_DEVICE, known.address + offset,
                                 static_cast<uint8_t*>(known.host) + offset, bytes);
}

int xclCopyBO(xclDeviceHandle /*h*/, xclBufferHandle /*to*/, xclBufferHandle /*from*/, size_t, size_t, size_t) {
  return -ENOSYS;
}

int xclGetBOProperties(xclDeviceHandle handle, xclBufferHandle buffer, xclBOProperties* properties) {
  const Buffer known = card(handle)->find(buffer);
  if (known.host == nullptr) return -EINVAL;
  *properties = {};
  properties->handle = buffer;
  properties->flags = known.flags;
  properties->size = known.bytes;
  properties->paddr = known.address;
  return 0;
}

xclBufferExportHandle xclExportBO(xclDeviceHandle /*handle*/, xclBufferHandle /*buffer*/) { return XRT_NULL_BO_EXPORT; }
xclBufferHandle xclImportBO(xclDeviceHandle /*handle*/, xclBufferExportHandle /*fd*/, unsigned /*flags*/) {
  return XRT_NULL_BO;
}

int xclExecBuf(xclDeviceHandle handle, xclBufferHandle buffer) { return -card(handle)->execute(buffer); }
int xclExecWait(xclDeviceHandle handle, int milliseconds) { return card(handle)->wait(milliseconds); }

int xclRegWrite(xclDeviceHandle handle, uint32_t unit, uint32_t offset, uint32_t value) {
  return -card(handle)->access(emu::Op::kWriteRegister, unit, offset, &value);
}
int xclRegRead(xclDeviceHandle handle, uint32_t unit, uint32_t offset, uint32_t* value) {
  return -card(handle)->access(emu::Op::kReadRegister, unit, offset, value);
}

size_t xclWrite(xclDeviceHandle handle, xclAddressSpace /*space*/, uint64_t address, const void* from, size_t bytes) {
  for (size_t at = 0; at + 4 <= bytes; at += 4) {
    uint32_t unit = 0, offset = 0, value = 0;
    std::memcpy(&value, static_cast<const uint8_t*>(from) + at, 4);
    if (!card(handle)->locate(address + at, &unit, &offset) ||
        card(handle)->access(emu::Op::kWriteRegister, unit, offset, &value) != 0) {
      return static_cast<size_t>(-1);
    }
  }
  return bytes;
}
size_t xclRead(xclDeviceHandle handle, xclAddressSpace /*space*/, uint64_t address, void* to, size_t bytes) {
  for (size_t at = 0; at + 4 <= bytes; at += 4) {
    uint32_t unit = 0, offset = 0, value = 0;
    if (!card(handle)->locate(address + at, &unit, &offset) ||
        card(handle)->access(emu::Op::kReadRegister, unit, offset, &value) != 0) {
      return static_cast<size_t>(-1);
    }
    std::memcpy(static_cast<uint8_t*>(to) + at, &value, 4);
  }
  return bytes;
}

ssize_t xclUnmgdPread(xclDeviceHandle handle, unsigned /*flags*/, void* to, size_t bytes, uint64_t address) {
  return -card(handle)->transfer(false, address, to, bytes);
}
ssize_t xclUnmgdPwrite(xclDeviceHandle handle, unsigned /*flags*/, const void* from, size_t bytes, uint64_t address) {
  return -card(handle)->transfer(true, address, const_cast<void*>(from), bytes);
}

int xclP2pEnable(xclDeviceHandle /*handle*/, bool /*enable*/, bool /*force*/) { return -ENOSYS; }
int xclReClock2(xclDeviceHandle /*handle*/, unsigned short /*region*/, const unsigned short* /*mhz*/) { return 0; }

}  // extern "C"

// Functions with C++ names that XRT's device object refers to.
int xclUpdateSchedulerStat(xclDeviceHandle /*handle*/) { return 0; }
int xclInternalResetDevice(xclDeviceHandle /*handle*/, xclResetKind /*kind*/) { return 0; }
int xclCmaEnable(xclDeviceHandle /*handle*/, bool /*enable*/, uint64_t /*bytes*/) { return -ENOSYS; }
int xclCloseExportHandle(xclBufferExportHandle /*handle*/) { return 0; }
