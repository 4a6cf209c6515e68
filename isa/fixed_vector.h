// SPDX-License-Identifier: Apache-2.0
// A std::vector with room for a fixed number of elements in place. Operands of an instruction and loops of a nest are a
// handful, and every candidate of the compiler's search makes thousands of them: allocating would cost more than what
// is done with them, and so would initialising elements that nobody adds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <new>
#include <type_traits>

#include "base/error.h"

namespace tessera::isa {

template <typename T, size_t kCapacity>
class FixedVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  FixedVector() {}
  FixedVector(std::initializer_list<T> elements) {
    for (const T& element : elements) push_back(element);
  }
  FixedVector(const FixedVector& other) { *this = other; }
  FixedVector& operator=(const FixedVector& other) {
    if (this == &other) return *this;
    size_ = 0;
    for (const T& element : other) push_back(element);
    return *this;
  }

  T* begin() { return std::launder(reinterpret_cast<T*>(storage_.data())); }
  T* end() { return begin() + size_; }
  const T* begin() const { return std::launder(reinterpret_cast<const T*>(storage_.data())); }
  const T* end() const { return begin() + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t k) { return begin()[k]; }
  const T& operator[](size_t k) const { return begin()[k]; }
  T& back() { return begin()[size_ - 1]; }
  const T& back() const { return begin()[size_ - 1]; }

  T& push_back(const T& element) {
    TESSERA_INVARIANT(size_ < kCapacity, "a vector of fixed capacity is full");
    return *new (&storage_[sizeof(T) * size_++]) T(element);
  }
  T& emplace_back() {
    TESSERA_INVARIANT(size_ < kCapacity, "a vector of fixed capacity is full");
    return *new (&storage_[sizeof(T) * size_++]) T;
  }
  void pop_back() { --size_; }
  T* insert(T* at, const T& element) {
    push_back(element);
    std::rotate(at, end() - 1, end());
    return at;
  }
  T* erase(T* at) { return erase(at, at + 1); }
  T* erase(T* first, T* last) {
    size_ = static_cast<size_t>(std::copy(last, end(), first) - begin());
    return first;
  }

 private:
  alignas(T) std::array<std::byte, sizeof(T) * kCapacity> storage_;
  size_t size_ = 0;
};

}  // namespace tessera::isa
