// SPDX-License-Identifier: Apache-2.0
// Reads and writes NumPy's .npy and .npz files. Arrays enter and leave as ops::Tensor, row-major; Fortran order is
// transposed on reading. Archives may be stored or deflated; archives are written deflated, so that numpy.load reads
// them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ops/tensor.h"

namespace tessera::runtime {

using NamedTensors = std::vector<std::pair<std::string, ops::Tensor>>;

/// Reads one array. Errors: kIo (cannot read), kInvalidArgument (not an .npy file, unsupported element type).
ops::Tensor load_npy(const std::string& path);
/// Reads all arrays of an archive in file order, without the ".npy" of their names. Errors as load_npy.
NamedTensors load_npz(const std::string& path);
/// Errors: kIo.
void save_npy(const std::string& path, const ops::Tensor& tensor);
void save_npz(const std::string& path, const NamedTensors& tensors);

/// The bytes of an .npy file, header included, and back. `what` names the source in messages.
std::string encode_npy(const ops::Tensor& tensor);
ops::Tensor decode_npy(const std::string& bytes, const std::string& what);

}  // namespace tessera::runtime
