// SPDX-License-Identifier: Apache-2.0
// A queue in one block of memory, which grows when it is full and is never given back: queues here fill and empty all
// the time and stay short.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace tessera::sim::systemc {

template <typename T>
class Ring {
 public:
  bool empty() const { return begin_ == end_; }
  size_t size() const { return end_ - begin_; }
  /// Element n, 0 is the front.
  T& operator[](size_t n) { return items_[(begin_ + n) & mask_]; }
  const T& operator[](size_t n) const { return items_[(begin_ + n) & mask_]; }
  T& front() { return items_[begin_ & mask_]; }
  const T& front() const { return items_[begin_ & mask_]; }
  T& back() { return items_[(end_ - 1) & mask_]; }
  const T& back() const { return items_[(end_ - 1) & mask_]; }

  void push_back(T item) { push_back() = std::move(item); }
  /// One element more, to be assigned: what it holds is old.
  T& push_back() {
    if (size() > mask_) grow();
    return items_[end_++ & mask_];
  }
  void pop_front() { ++begin_; }
  void pop_back() { --end_; }
  void clear() { begin_ = end_ = 0; }
  void assign(size_t count, const T& item) {
    clear();
    while (size() < count) push_back(item);
  }

  template <typename R, typename U>
  struct Iterator {
    R* ring;
    size_t n;
    U& operator*() const { return (*ring)[n]; }
    Iterator& operator++() {
      ++n;
      return *this;
    }
    bool operator==(const Iterator& other) const { return n == other.n; }
  };
  auto begin() { return Iterator<Ring, T>{this, 0}; }
  auto end() { return Iterator<Ring, T>{this, size()}; }
  auto begin() const { return Iterator<const Ring, const T>{this, 0}; }
  auto end() const { return Iterator<const Ring, const T>{this, size()}; }

 private:
  void grow() {
    const size_t count = size(), places = 2 * count;
    auto items = std::make_unique<T[]>(places);
    for (size_t n = 0; n < count; ++n) items[n] = std::move((*this)[n]);
    items_ = std::move(items);
    mask_ = places - 1;
    begin_ = 0;
    end_ = count;
  }

  static constexpr size_t kPlaces = 8;  // a power of two, to begin with
  std::unique_ptr<T[]> items_ = std::make_unique<T[]>(kPlaces);
  size_t mask_ = kPlaces - 1;
  size_t begin_ = 0, end_ = 0;  // counted on without end
};

}  // namespace tessera::sim::systemc
