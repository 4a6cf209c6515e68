// SPDX-License-Identifier: Apache-2.0
// Files that are written whole or not at all. Enters: a path, the content. Leaves: a file of that content; or what
// stood there before, and nothing beside it.
#pragma once

#include <string>
#include <string_view>

namespace tessera::program {

/// Writes a file beside the path and gives it the path's name when it is complete, so that no reader meets a part and a
/// full disk costs no earlier file. What is no regular file, such as a device, is written to as it is; so is a file
/// whose folder takes no other. Errors: kIo, with the cause.
void write_whole(const std::string& path, std::string_view content);

}  // namespace tessera::program
