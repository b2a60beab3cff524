// SPDX-License-Identifier: GPL-2.0-or-later
//
// The Python module bootpress._core; src/bootpress/_core.pyi states its contract.
//
// The GIL is released for everything that works on data and taken again only to tick the monitor,
// from the thread that called. That is also where signals are noticed, so Ctrl-C stops the work.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "codec/codec.hpp"
#include "image/compare.hpp"
#include "image/image.hpp"
#include "image/unpack.hpp"
#include "pack/pack.hpp"
#include "tree/gather.hpp"
#include "tree/tree.hpp"

namespace py = pybind11;
using namespace bootpress;  // NOLINT(google-build-using-namespace): this file binds all of it

namespace {

using PyMonitorCall = std::optional<py::function>;
using LossRow = std::tuple<std::string, std::uint64_t, py::bytes>;

// Tells the caller how far the work is, and lets Python's signal handlers run.
class PyMonitor final : public Monitor {
 public:
  explicit PyMonitor(const PyMonitorCall& call) : call_(call) {}
  void tick(const Progress& progress) override {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (!call_) return;
    (*call_)(std::string(progress.stage), progress.done_bytes, progress.total_bytes,
             progress.done_files, progress.total_files);
  }

 private:
  const PyMonitorCall& call_;
};

// Runs work without the GIL. REQUIRES: `work` touches no Python object.
template <typename Work>
auto run_released(const PyMonitorCall& call, Work work) {
  PyMonitor monitor(call);
  const py::gil_scoped_release release;
  return work(monitor);
}

// Names are bytes; in a message they stand as Python shows file names.
py::object text_of(const std::string& bytes) {
  return py::reinterpret_steal<py::object>(
      PyUnicode_DecodeFSDefaultAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
}

const char* error_class(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return "UsageError";
    case ErrorKind::source:
      return "SourceError";
    case ErrorKind::changed:
      return "ChangedError";
    case ErrorKind::limit:
      return "LimitError";
    case ErrorKind::target:
      return "TargetError";
    case ErrorKind::corrupt:
      return "CorruptError";
    case ErrorKind::unsupported:
      return "UnsupportedError";
    case ErrorKind::interrupted:
      return "Interrupted";
  }
  return "CorruptError";
}

void translate_error(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const py::object type = py::module_::import("bootpress.errors").attr(error_class(error.kind()));
    py::object hint = py::none();
    if (!error.hint().empty()) hint = text_of(error.hint());
    const py::object value = type(text_of(error.what()), py::arg("hint") = hint);
    PyErr_SetObject(type.ptr(), value.ptr());
  }
}

std::vector<LossRow> rows_of(const std::vector<Loss>& losses) {
  std::vector<LossRow> rows;
  for (const Loss& loss : losses) rows.emplace_back(loss.kind, loss.count, py::bytes(loss.example));
  return rows;
}

InodeId checked_inode(const Tree& tree, std::uint64_t id) {
  if (id >= tree.size()) throw py::index_error("no such inode id");
  return static_cast<InodeId>(id);
}

py::dict inode_row(const Tree& tree, std::uint64_t number) {
  const InodeId id = checked_inode(tree, number);
  const Inode& inode = tree[id];
  py::dict xattrs;
  for (const Xattr& xattr : tree.xattrs(id)) xattrs[py::bytes(xattr.name)] = py::bytes(xattr.value);
  py::dict row;
  row["type"] = std::string(file_type_name(inode.type));
  row["mode"] = inode.mode;
  row["uid"] = inode.uid;
  row["gid"] = inode.gid;
  row["links"] = inode.links;
  row["size"] = inode.size;
  row["mtime"] = inode.mtime;
  row["device_major"] = inode.device_major;
  row["device_minor"] = inode.device_minor;
  row["target"] = py::bytes(std::string(tree.text(inode.target)));
  row["xattrs"] = xattrs;
  return row;
}

std::vector<std::pair<py::bytes, InodeId>> entry_rows(const Tree& tree, std::uint64_t number) {
  const InodeId id = checked_inode(tree, number);
  std::vector<std::pair<py::bytes, InodeId>> rows;
  if (tree[id].type != FileType::directory) return rows;
  for (const Entry& entry : tree.entries(id)) {
    rows.emplace_back(py::bytes(std::string(tree.text(entry.name))), entry.inode);
  }
  return rows;
}

std::vector<std::pair<py::bytes, InodeId>> name_rows(const Tree& tree) {
  std::vector<std::pair<py::bytes, InodeId>> rows;
  tree.walk([&](const std::string& path, InodeId id) { rows.emplace_back(py::bytes(path), id); });
  return rows;
}

py::bytes read_file(const Tree& tree, std::uint64_t number, std::uint64_t offset,
                    std::uint64_t size) {
  const InodeId id = checked_inode(tree, number);
  if (tree[id].type != FileType::file || offset >= tree[id].size) return {};
  const std::uint64_t length = std::min(size, tree[id].size - offset);
  // Filled in place: a bytes object nobody else has seen may be written to.
  py::bytes out = py::reinterpret_steal<py::bytes>(
      PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(length)));
  if (!out) throw py::error_already_set();
  auto* data = reinterpret_cast<std::byte*>(PyBytes_AS_STRING(out.ptr()));
  const py::gil_scoped_release release;
  tree.source().open(tree, id)->read(offset, {data, length});
  return out;
}

// An image with its tree, which is made once.
struct PyImage {
  PyImage(const std::string& path, FilePart part)
      : image(Image::open(open_image_file(path, part))),
        tree(std::make_shared<Tree>(image->tree())) {}
  std::shared_ptr<const Image> image;
  std::shared_ptr<Tree> tree;
};

py::dict image_info(const PyImage& self) {
  const squashfs::Superblock& s = self.image->superblock();
  py::dict info;
  info["codec"] = std::string(codec_name(self.image->codec()));
  info["block_size"] = s.block_size;
  info["inodes"] = s.inode_count;
  info["fragments"] = s.fragment_count;
  info["ids"] = s.id_count;
  info["mkfs_time"] = s.mkfs_time;
  info["flags"] = s.flags;
  info["root_inode"] = s.root_inode;
  info["bytes_used"] = s.bytes_used;
  info["image_bytes"] = self.image->bytes().size();
  const std::pair<const char*, std::uint64_t> tables[] = {{"inode_table", s.inode_table},
                                                          {"directory_table", s.directory_table},
                                                          {"fragment_table", s.fragment_table},
                                                          {"export_table", s.export_table},
                                                          {"id_table", s.id_table},
                                                          {"xattr_table", s.xattr_table}};
  for (const auto& [name, offset] : tables) {
    info[name] = offset == squashfs::kAbsent ? py::object(py::none()) : py::int_(offset);
  }
  const ByteView record = self.image->codec_record();
  info["codec_record"] = py::bytes(reinterpret_cast<const char*>(record.data()), record.size());
  return info;
}

py::tuple extent_row(std::uint64_t offset, std::uint64_t length) {
  return py::make_tuple(offset, length);
}

py::dict layout_row(const PyImage& self, std::uint64_t number) {
  const Tree& tree = *self.tree;
  const Inode& inode = tree[checked_inode(tree, number)];
  const InodeExtents extents = self.image->extents(inode.data);
  py::dict row;
  row["inode"] = extents.number;
  row["reference"] = extents.reference;
  row["inode_extent"] = extent_row(extents.inode.offset, extents.inode.length);
  row["listing_extent"] = extents.listing.length == 0
                              ? py::object(py::none())
                              : extent_row(extents.listing.offset, extents.listing.length);
  row["listing_reference"] =
      extents.listing_bytes == 0 ? py::object(py::none()) : py::int_(extents.listing_reference);
  row["listing_bytes"] = extents.listing_bytes;
  py::list blocks;
  row["fragment"] = py::none();
  row["fragment_extent"] = py::none();
  row["tail"] = py::none();
  if (inode.type == FileType::file) {
    const FileBlocks file = self.image->blocks(inode.data);
    std::uint64_t at = file.start;
    for (const std::uint32_t word : file.words) {
      const std::uint32_t stored = word & squashfs::kBlockSizeMask;
      blocks.append(stored == 0 ? extent_row(0, 0) : extent_row(at, stored));
      at += stored;
    }
    if (file.fragment != squashfs::kNoFragment) {
      const FragmentEntry& fragment = self.image->fragments()[file.fragment];
      row["fragment"] = file.fragment;
      row["fragment_extent"] = extent_row(fragment.start, fragment.word & squashfs::kBlockSizeMask);
      row["tail"] =
          extent_row(file.fragment_offset, file.size % self.image->superblock().block_size);
    }
  }
  row["blocks"] = blocks;
  return row;
}

std::vector<std::tuple<std::uint64_t, std::uint32_t, bool>> fragment_rows(const PyImage& self) {
  std::vector<std::tuple<std::uint64_t, std::uint32_t, bool>> rows;
  for (const FragmentEntry& fragment : self.image->fragments()) {
    rows.emplace_back(fragment.start, fragment.word & squashfs::kBlockSizeMask,
                      (fragment.word & squashfs::kBlockRaw) != 0);
  }
  return rows;
}

std::vector<py::dict> codec_rows() {
  std::vector<py::dict> rows;
  for (const CodecId id :
       {CodecId::gzip, CodecId::xz, CodecId::lzo, CodecId::lz4, CodecId::zstd, CodecId::none}) {
    const LevelRange levels = level_range(id);
    py::dict row;
    row["name"] = std::string(codec_name(id));
    row["version"] = codec_version(id);
    row["lowest"] = levels.lowest;
    row["highest"] = levels.highest;
    row["standard"] = levels.standard;
    rows.push_back(row);
  }
  return rows;
}

std::vector<std::string> bcj_names() {
  std::vector<std::string> names;
  for (const Bcj bcj : {Bcj::none, Bcj::automatic, Bcj::x86, Bcj::powerpc, Bcj::ia64, Bcj::arm,
                        Bcj::armthumb, Bcj::sparc, Bcj::arm64}) {
    names.emplace_back(bcj_name(bcj));
  }
  return names;
}

constexpr std::pair<const char*, ColdOrder> kColdOrders[] = {{"similarity", ColdOrder::similarity},
                                                             {"path", ColdOrder::path},
                                                             {"gathered", ColdOrder::gathered}};

ColdOrder cold_order_from_name(const std::string& name) {
  for (const auto& [known, order] : kColdOrders) {
    if (name == known) return order;
  }
  throw Error(ErrorKind::usage, "unknown cold order '" + name + "'",
              "choose similarity, path or gathered");
}

std::vector<InodeId> checked_inodes(const Tree& tree, const std::vector<std::uint64_t>& ids) {
  std::vector<InodeId> checked;
  checked.reserve(ids.size());
  for (const std::uint64_t id : ids) checked.push_back(checked_inode(tree, id));
  return checked;
}

py::dict pack_row(const Tree& tree, const PackResult& result) {
  py::dict stages;
  for (const auto& [name, seconds] : result.stages) stages[name.c_str()] = seconds;
  py::dict row;
  row["image_bytes"] = result.image_bytes;
  row["used_bytes"] = result.used_bytes;
  row["input_bytes"] = result.input_bytes;
  row["inodes"] = tree.size();
  row["files"] = result.files;
  row["duplicate_files"] = result.duplicate_files;
  row["duplicate_bytes"] = result.duplicate_bytes;
  row["data_blocks"] = result.blocks.data_blocks;
  row["raw_blocks"] = result.blocks.raw_blocks;
  row["hole_blocks"] = result.blocks.hole_blocks;
  row["fragments"] = result.fragments;
  row["hot_files"] = result.hot_files;
  row["hot_bytes"] = result.blocks.hot_bytes;
  row["copied_bytes"] = result.blocks.copied_bytes;
  row["copied_fragments"] = result.blocks.copied_fragments;
  row["metadata_bytes"] = result.metadata_bytes;
  row["stages"] = stages;
  row["seal"] = py::bytes(reinterpret_cast<const char*>(result.seal.data()), result.seal.size());
  return row;
}

py::dict pack(const Tree& tree, const std::string& target, const std::string& codec, int level,
              std::uint32_t block_size, const std::string& bcj,
              const std::vector<std::uint64_t>& hot, const std::vector<std::uint64_t>& hot_data,
              const std::vector<std::uint64_t>& last, const std::string& cold_order, bool fragments,
              bool dedupe, std::optional<std::uint32_t> mkfs_time, unsigned jobs,
              std::uint64_t memory, bool verify, const PyMonitorCall& monitor) {
  const PackOptions options{
      .codec = {.id = codec_from_name(codec),
                .level = level,
                .block_size = block_size,
                .bcj = bcj_from_name(bcj)},
      .hot = checked_inodes(tree, hot),
      .hot_data = checked_inodes(tree, hot_data),
      .last = checked_inodes(tree, last),
      .cold_order = cold_order_from_name(cold_order),
      .fragments = fragments,
      .dedupe = dedupe,
      .mkfs_time = mkfs_time,
      .jobs = std::max(jobs, 1U),
      .memory = memory,
      .verify = verify,
  };
  const PackResult result =
      run_released(monitor, [&](Monitor& m) { return pack_image(tree, target, options, m); });
  return pack_row(tree, result);
}

py::dict repack(const PyImage& self, const std::string& target, int level, const std::string& bcj,
                const std::vector<std::uint64_t>& hot, const std::vector<std::uint64_t>& hot_data,
                const std::vector<std::uint64_t>& last, unsigned jobs, std::uint64_t memory,
                bool verify, const PyMonitorCall& monitor) {
  const Tree& tree = *self.tree;
  RepackOptions options{.codec = recorded_options(*self.image),
                        .hot = checked_inodes(tree, hot),
                        .hot_data = checked_inodes(tree, hot_data),
                        .last = checked_inodes(tree, last),
                        .jobs = std::max(jobs, 1U),
                        .memory = memory,
                        .verify = verify};
  options.codec.level = level;
  options.codec.bcj = bcj_from_name(bcj);
  const PackResult result = run_released(
      monitor, [&](Monitor& m) { return repack_image(*self.image, tree, target, options, m); });
  return pack_row(tree, result);
}

std::string seal_name(Image::SealState state) {
  switch (state) {
    case Image::SealState::absent:
      return "absent";
    case Image::SealState::intact:
      return "intact";
    case Image::SealState::broken:
      return "broken";
  }
  return "absent";
}

py::dict verify(const PyImage& self, unsigned jobs, const PyMonitorCall& monitor) {
  const VerifyResult result = run_released(
      monitor, [&](Monitor& m) { return verify_image(*self.image, std::max(jobs, 1U), m); });
  py::dict row;
  row["files"] = result.files;
  row["blocks"] = result.blocks;
  row["bytes"] = result.bytes;
  row["seal"] = seal_name(result.seal);
  return row;
}

py::tuple unpack_image(const PyImage& self, const std::string& directory, unsigned jobs,
                       bool owners, bool xattrs, const PyMonitorCall& monitor) {
  const UnpackOptions options{.jobs = std::max(jobs, 1U), .owners = owners, .xattrs = xattrs};
  const UnpackResult result =
      run_released(monitor, [&](Monitor& m) { return unpack(self.image, directory, options, m); });
  return py::make_tuple(result.files, result.bytes, rows_of(result.skipped));
}

std::vector<std::tuple<py::bytes, std::string, py::object, py::object>> compare(
    const Tree& a, const Tree& b, unsigned jobs, bool xattrs, bool owners, bool times,
    const PyMonitorCall& monitor) {
  const CompareOptions options{
      .jobs = std::max(jobs, 1U), .xattrs = xattrs, .owners = owners, .times = times};
  const std::vector<Difference> found =
      run_released(monitor, [&](Monitor& m) { return compare_trees(a, b, options, m); });
  std::vector<std::tuple<py::bytes, std::string, py::object, py::object>> rows;
  for (const Difference& d : found) {
    rows.emplace_back(py::bytes(d.path), d.what, text_of(d.a), text_of(d.b));
  }
  return rows;
}

std::shared_ptr<Tree> shared(Tree tree) { return std::make_shared<Tree>(std::move(tree)); }

}  // namespace

PYBIND11_MODULE(_core, m) {
  py::register_local_exception_translator(translate_error);

  py::class_<Selection>(m, "Selection")
      .def(py::init([](std::vector<std::string> excludes, bool xattrs,
                       std::optional<std::pair<std::uint32_t, std::uint32_t>> owner,
                       std::optional<std::int64_t> newest_mtime) {
             return Selection{.excludes = std::move(excludes),
                              .xattrs = xattrs,
                              .owner = owner,
                              .newest_mtime = newest_mtime};
           }),
           py::kw_only(), py::arg("excludes") = std::vector<std::string>(),
           py::arg("xattrs") = true, py::arg("owner") = py::none(),
           py::arg("newest_mtime") = py::none());

  py::class_<Tree, std::shared_ptr<Tree>>(m, "Tree")
      .def("__len__", &Tree::size)
      .def_property_readonly("file_count",
                             [](const Tree& tree) {
                               std::uint64_t files = 0;
                               for (InodeId id = 0; id < tree.size(); ++id) {
                                 files += tree[id].type == FileType::file ? 1 : 0;
                               }
                               return files;
                             })
      .def_property_readonly("byte_count",
                             [](const Tree& tree) {
                               std::uint64_t bytes = 0;
                               for (InodeId id = 0; id < tree.size(); ++id) {
                                 if (tree[id].type == FileType::file) bytes += tree[id].size;
                               }
                               return bytes;
                             })
      .def_property_readonly("losses", [](const Tree& tree) { return rows_of(tree.losses()); })
      .def("find", [](const Tree& tree, const std::string& path) { return tree.find(path); })
      .def("path",
           [](const Tree& tree, std::uint64_t inode) {
             return py::bytes(tree.path(checked_inode(tree, inode)));
           })
      .def("names", &name_rows)
      .def("entries", &entry_rows)
      .def("row", &inode_row)
      .def("read", &read_file, py::arg("inode"), py::arg("offset"), py::arg("size"));

  py::class_<PyImage>(m, "Image")
      .def(py::init([](const std::string& path, std::uint64_t offset, std::uint64_t length) {
             const py::gil_scoped_release release;
             return std::make_unique<PyImage>(path, FilePart{.offset = offset, .length = length});
           }),
           py::arg("path"), py::kw_only(), py::arg("offset") = 0, py::arg("length") = 0)
      .def_property_readonly("tree", [](const PyImage& self) { return self.tree; })
      .def("info", &image_info)
      .def("layout", &layout_row)
      .def("fragments", &fragment_rows)
      .def("recorded_options",
           [](const PyImage& self) {
             const CodecOptions recorded = recorded_options(*self.image);
             return py::make_tuple(std::string(codec_name(recorded.id)), recorded.level,
                                   recorded.block_size, std::string(bcj_name(recorded.bcj)));
           })
      .def("keeps_blocks", [](const PyImage& self, const std::string& codec, int level,
                              std::uint32_t block_size, const std::string& bcj) {
        return keeps_blocks(*self.image, {.id = codec_from_name(codec),
                                          .level = level,
                                          .block_size = block_size,
                                          .bcj = bcj_from_name(bcj)});
      });

  m.def("codecs", &codec_rows);
  m.def("bcj_filters", &bcj_names);
  m.def(
      "scan_directory",
      [](const std::string& path, const Selection& selection, unsigned jobs,
         const PyMonitorCall& monitor) {
        return run_released(monitor, [&](Monitor& t) {
          return shared(scan_directory(path, selection, std::max(jobs, 1U), t));
        });
      },
      py::arg("path"), py::arg("selection"), py::kw_only(), py::arg("jobs") = 1,
      py::arg("monitor") = py::none());
  m.def(
      "read_archive",
      [](int fd, const std::string& name, const std::string& spool_directory,
         const Selection& selection, const PyMonitorCall& monitor) {
        return run_released(monitor, [&](Monitor& t) {
          return shared(read_archive(fd, name, spool_directory, selection, t));
        });
      },
      py::arg("fd"), py::arg("name"), py::arg("spool_directory"), py::arg("selection"),
      py::arg("monitor") = py::none());
  m.def(
      "select",
      [](const Tree& tree, const Selection& selection) { return shared(select(tree, selection)); },
      py::arg("tree"), py::arg("selection"));
  m.def("pack", &pack, py::arg("tree"), py::arg("target"), py::kw_only(), py::arg("codec"),
        py::arg("level"), py::arg("block_size"), py::arg("bcj"), py::arg("hot"),
        py::arg("hot_data"), py::arg("last"), py::arg("cold_order"), py::arg("fragments"),
        py::arg("dedupe"), py::arg("mkfs_time"), py::arg("jobs"), py::arg("memory"),
        py::arg("verify"), py::arg("monitor") = py::none());
  m.def("repack", &repack, py::arg("image"), py::arg("target"), py::kw_only(), py::arg("level"),
        py::arg("bcj"), py::arg("hot"), py::arg("hot_data"), py::arg("last"), py::arg("jobs"),
        py::arg("memory"), py::arg("verify"), py::arg("monitor") = py::none());
  m.def("unpack", &unpack_image, py::arg("image"), py::arg("directory"), py::kw_only(),
        py::arg("jobs"), py::arg("owners"), py::arg("xattrs"), py::arg("monitor") = py::none());
  m.def("compare", &compare, py::arg("a"), py::arg("b"), py::kw_only(), py::arg("jobs"),
        py::arg("xattrs"), py::arg("owners"), py::arg("times"), py::arg("monitor") = py::none());
  m.def("verify", &verify, py::arg("image"), py::kw_only(), py::arg("jobs"),
        py::arg("monitor") = py::none());
}
