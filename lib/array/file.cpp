// Errors carry the reasons of the system.
#include "array/file.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

namespace sinter {
namespace {

Diagnostic failure(Rule rule, const std::string& path, std::string seen, std::string allowed = {}) {
  Diagnostic d;
  d.rule = rule;
  d.attribute = "file '" + path + "'";
  d.seen = std::move(seen);
  d.allowed = std::move(allowed);
  return d;
}

// ---- writing

// Closes at the end of its scope; close() says whether all was written.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() { close(); }
  int fd() const { return fd_; }
  bool close() {
    const int fd = fd_;
    fd_ = -1;
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// Replaces symbolic links at the end of the path by what they name, which need not exist. False:
// there are too many, or one of /proc, which names an open file and not a path.
bool follow_links(std::string& path) {
  constexpr int kMostLinks = 40;
  for (int i = 0; i < kMostLinks; ++i) {
    struct stat s {};
    if (lstat(path.c_str(), &s) != 0 || !S_ISLNK(s.st_mode)) return true;
    if (path.starts_with("/proc/") || path.starts_with("/dev/fd/")) return false;
    std::string target(4096, '\0');
    const ssize_t n = readlink(path.c_str(), target.data(), target.size());
    if (n <= 0 || static_cast<std::size_t>(n) == target.size()) return false;
    target.resize(static_cast<std::size_t>(n));
    path = target[0] == '/' ? target : folder_of(path) + target;
  }
  return false;
}

// A name that nobody can foresee, and O_EXCL: what others put into the folder is never opened.
int open_temporary(const std::string& target, mode_t mode, std::string& name) {
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    std::uint64_t random = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
      random = static_cast<std::uint64_t>(clock()) ^ reinterpret_cast<std::uintptr_t>(&random);
    name = folder_of(target) + ".sinter-" + std::to_string(random) + ".tmp";
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

Status write_in_place(const std::string& path, std::string_view bytes, int flags) {
  Output file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | flags));
  if (file.fd() < 0) return failure(Rule::file_write, path, std::strerror(errno));
  if (write_all(file.fd(), bytes) && file.close()) return Done{};
  return failure(Rule::output_lost, path, std::strerror(errno));
}

// `old` describes the file that is replaced; null where there is none.
Status write_beside(const std::string& path, const std::string& target, const struct stat* old,
                    std::string_view bytes) {
  if (old && faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0)
    return failure(Rule::file_write, path, std::strerror(errno));
  std::string temporary;
  Output file(open_temporary(target, old ? 0600 : 0666, temporary));
  if (file.fd() < 0)
    return failure(Rule::file_write, path,
                   std::string("no new file in its folder: ") + std::strerror(errno));
  bool done = write_all(file.fd(), bytes);
  if (done && old) {
    // Only root can give files away; the mode has to be right whoever owns the file.
    const bool given = fchown(file.fd(), old->st_uid, old->st_gid) == 0;
    const mode_t kept = given || old->st_gid == getegid() ? 0777 : 0707;
    done = fchmod(file.fd(), old->st_mode & kept) == 0;
  }
  done = done && file.close() && std::rename(temporary.c_str(), target.c_str()) == 0;
  if (done) return Done{};
  const int error = errno;
  ::unlink(temporary.c_str());
  return failure(Rule::output_lost, path, std::strerror(error));
}

}  // namespace

Result<InputFile> InputFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  std::FILE* stream = fd < 0 ? nullptr : fdopen(fd, "rb");
  if (!stream) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    return failure(Rule::file_read, path, std::strerror(error));
  }
  InputFile file(path, stream);
  struct stat s {};
  if (fstat(fd, &s) != 0) return failure(Rule::file_read, path, std::strerror(errno));
  const bool pipe = S_ISFIFO(s.st_mode) || S_ISSOCK(s.st_mode);
  if (!S_ISREG(s.st_mode) && !pipe)
    return failure(Rule::file_read, path, S_ISDIR(s.st_mode) ? "a folder" : "a device",
                   "a regular file or a pipe");
  file.stated_ = pipe ? 0 : static_cast<std::size_t>(std::max<off_t>(s.st_size, 0));
  return file;
}

Result<std::string> InputFile::read(std::size_t n) {
  // What is not there takes no memory: room is made as far as the file states, then in steps.
  constexpr std::size_t kStep = std::size_t{1} << 20;
  std::string bytes;
  while (bytes.size() < n) {
    const std::size_t have = bytes.size();
    bytes.resize(std::min(n, std::max({have + kStep, 2 * have, stated_})));
    const std::size_t got = std::fread(bytes.data() + have, 1, bytes.size() - have, file_.get());
    const bool end = got < bytes.size() - have;
    bytes.resize(have + got);
    if (end) break;
  }
  if (std::ferror(file_.get())) return failure(Rule::file_read, path_, std::strerror(errno));
  return bytes;
}

Result<std::string> read_file(const std::string& path, std::size_t most) {
  auto file = InputFile::open(path);
  SINTER_TRY(file);
  const std::string limit = "at most " + std::to_string(most) + " bytes";
  if (file->stated_bytes() > most)
    return failure(Rule::file_read, path, std::to_string(file->stated_bytes()) + " bytes", limit);
  auto bytes = file->read(most + 1);
  SINTER_TRY(bytes);
  if (bytes->size() > most) return failure(Rule::file_read, path, "more", limit);
  return bytes;
}

Status write_file(const std::string& path, std::string_view bytes) {
  struct stat status {};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) return write_in_place(path, bytes, 0);
  std::string target = path;
  if (!follow_links(target)) return write_in_place(path, bytes, O_TRUNC);
  return write_beside(path, target, exists ? &status : nullptr, bytes);
}

}  // namespace sinter
