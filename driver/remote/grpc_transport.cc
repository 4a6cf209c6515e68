// SPDX-License-Identifier: Apache-2.0
// Streams of gRPC behind transport.h. Messages are bytes: who uses it knows what they mean. Every operation is waited
// for with a deadline of its own, because a stream as a whole has none.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "driver/remote/transport.h"

namespace {

constexpr int kNothingInTime = -1;

class Stream {
 public:
  explicit Stream(const TesseraStreamOptions& options) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);  // a server that is gone without a word is noticed
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection for each device
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
    if (options.tls != 0) {
      grpc::SslCredentialsOptions tls;
      tls.pem_root_certs = options.roots;
      credentials = grpc::SslCredentials(tls);
    }
    channel_ = grpc::CreateCustomChannel(options.address, credentials, arguments);
    stub_ = std::make_unique<grpc::GenericStub>(channel_);
    if (*options.token != '\0') context_.AddMetadata("authorization", std::string("Bearer ") + options.token);
    if (*options.device != '\0') context_.AddMetadata("tessera-device", options.device);
    call_ = stub_->PrepareCall(&context_, options.method, &queue_);
    call_->StartCall(tag());
    starting_ = true;
  }

  ~Stream() {
    if (!ended_) {
      context_.TryCancel();
      finish();
    }
    queue_.Shutdown();
    void* ignored = nullptr;
    bool ok = false;
    while (queue_.Next(&ignored, &ok)) {
    }
  }

  int send(const void* bytes, size_t count, double seconds, TesseraStatus* status) {
    if (!started(seconds, status)) return 1;
    const grpc::Slice slice(bytes, count);
    call_->Write(grpc::ByteBuffer(&slice, 1), tag());
    return wait(seconds, status) ? 0 : 1;
  }

  int receive(const void** bytes, size_t* count, double seconds, TesseraStatus* status) {
    if (!started(seconds, status)) return 1;
    grpc::ByteBuffer buffer;
    call_->Read(&buffer, tag());
    if (!wait(seconds, status)) return 1;
    if (!buffer.TrySingleSlice(&message_).ok() && !buffer.DumpToSingleSlice(&message_).ok()) return 1;
    *bytes = message_.begin();
    *count = message_.size();
    return 0;
  }

 private:
  static void* tag() { return reinterpret_cast<void*>(1); }

  bool started(double seconds, TesseraStatus* status) {
    if (ended_) return report(status);
    if (!starting_) return true;
    starting_ = false;
    return wait(seconds, status);
  }

  /// Waits for the operation that has been begun. False when the stream has ended.
  bool wait(double seconds, TesseraStatus* status) {
    void* which = nullptr;
    bool ok = false;
    const auto until =
        std::chrono::system_clock::now() + std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
    const auto next =
        seconds > 0 ? queue_.AsyncNext(&which, &ok, until)
                    : (queue_.Next(&which, &ok) ? grpc::CompletionQueue::GOT_EVENT : grpc::CompletionQueue::SHUTDOWN);
    if (next == grpc::CompletionQueue::GOT_EVENT && ok) return true;
    late_ = next == grpc::CompletionQueue::TIMEOUT;
    if (late_) {
      context_.TryCancel();
      queue_.Next(&which, &ok);  // the operation itself, now that it is cancelled
    }
    finish();
    return report(status);
  }

  void finish() {
    void* which = nullptr;
    bool ok = false;
    if (starting_) queue_.Next(&which, &ok);
    starting_ = false;
    call_->Finish(&status_, tag());
    queue_.Next(&which, &ok);
    ended_ = true;
  }

  bool report(TesseraStatus* status) const {
    status->code = late_ ? kNothingInTime : static_cast<int>(status_.error_code());
    std::snprintf(status->message, sizeof status->message, "%s", status_.error_message().c_str());
    return false;
  }

  grpc::CompletionQueue queue_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::GenericStub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::Slice message_;
  grpc::Status status_;
  bool starting_ = false, ended_ = false, late_ = false;
};

Stream* as_stream(void* stream) { return static_cast<Stream*>(stream); }

constexpr TesseraTransport kTransport = {
    TESSERA_TRANSPORT_VERSION,
    [](const TesseraStreamOptions* options) -> void* { return new Stream(*options); },
    [](void* stream, const void* bytes, size_t count, double seconds, TesseraStatus* status) {
      return as_stream(stream)->send(bytes, count, seconds, status);
    },
    [](void* stream, const void** bytes, size_t* count, double seconds, TesseraStatus* status) {
      return as_stream(stream)->receive(bytes, count, seconds, status);
    },
    [](void* stream) { delete as_stream(stream); },
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const TesseraTransport* tessera_transport() {
  static const bool quiet = [] {
    setenv("GRPC_VERBOSITY", "NONE", 0);  // what is wrong stands in the status
    return true;
  }();
  (void)quiet;
  return &kTransport;
}
