// SPDX-License-Identifier: GPL-2.0-or-later
//
// Makes a Tree of a directory or an archive. (An image's tree is Image::tree().)
#pragma once

#include <string>

#include "base/monitor.hpp"
#include "tree/tree.hpp"

namespace bootpress {

// Scans a directory on `jobs` threads: hard links by device and inode, holes by allocation. Inodes
// come breadth first, names in byte order. Nothing is read yet; a file that is not as scanned when
// it is read is a `changed` error.
[[nodiscard]] Tree scan_directory(const std::string& path, const Selection& selection,
                                  unsigned jobs, Monitor& monitor);

// Reads a tar or cpio archive (gzip, xz, zstd, lz4, bzip2 or plain) from `fd`, once and in order,
// so a pipe will do. Content goes to an unlinked file in `spool_directory`, from where any worker
// can read it. `name` stands for the archive in messages. A later entry replaces an earlier one of
// the same path, as tar does. The archive's own end mark must be there, otherwise it is cut short.
[[nodiscard]] Tree read_archive(int fd, const std::string& name, const std::string& spool_directory,
                                const Selection& selection, Monitor& monitor);

}  // namespace bootpress
