#include "runtime/disk_cache.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <tuple>
#include <utility>
#include <vector>

#include "base/env.hpp"

namespace sinter {
namespace {

constexpr const char* kFormatDirectory = "v1";
constexpr std::string_view kEntrySuffix = ".kernel", kTemporaryPrefix = "tmp.";
constexpr std::int64_t kLargestEntry = std::int64_t{256} << 20;
constexpr std::time_t kStaleSeconds = 3600;  // no write takes this long
constexpr std::time_t kTouchSeconds = 3600;  // how exactly "least recently used" is kept

class File {
 public:
  explicit File(int fd = -1) : fd_(fd) {}
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

std::string reason(std::string_view what) { return fmt::format("{}: {}", what, strerror(errno)); }

// Empty when the directory behind `fd` is one that nobody else can write to.
std::string refuse_directory(int fd, std::string_view path) {
  struct stat s {};
  if (fstat(fd, &s) != 0) return reason(path);
  if (!S_ISDIR(s.st_mode)) return fmt::format("{} is not a directory", path);
  if (s.st_uid != geteuid()) return fmt::format("{} belongs to user {}", path, s.st_uid);
  if (s.st_mode & (S_IWGRP | S_IWOTH))
    return fmt::format("{} can be written by others (mode {:o})", path, s.st_mode & 07777);
  return {};
}

// Makes the missing directories of a path; those that exist are left as they are.
void make_directories(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    mkdir(path.substr(0, at).c_str(), 0700);
  mkdir(path.c_str(), 0700);
}

constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// The directory of the entries, checked; or why there is none, in `why`.
File open_directory(const std::string& root, bool create, std::string& why) {
  if (create) make_directories(root);
  File top(::open(root.c_str(), kDirectoryFlags));
  why = top ? refuse_directory(top.fd(), root) : reason(root);
  if (!why.empty()) return File();
  if (create) mkdirat(top.fd(), kFormatDirectory, 0700);
  const std::string path = root + "/" + kFormatDirectory;
  File entries(openat(top.fd(), kFormatDirectory, kDirectoryFlags));
  why = entries ? refuse_directory(entries.fd(), path) : reason(path);
  return why.empty() ? std::move(entries) : File();
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool read_all(int fd, std::string& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::read(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

std::string entry_name(const CacheKey& key) { return key.hex() + std::string(kEntrySuffix); }

std::string temporary_name() {
  std::uint64_t random[2] = {};
  if (getrandom(random, sizeof random, GRND_NONBLOCK) != sizeof random)
    random[0] = static_cast<std::uint64_t>(clock()) ^ reinterpret_cast<std::uintptr_t>(&random);
  return fmt::format("{}{}.{:016x}{:016x}", kTemporaryPrefix, getpid(), random[0], random[1]);
}

// A folder of an entry's name cannot be replaced by a file. An empty one goes; what is in another
// is not ours, so it is kept under a name that is no entry's.
bool clear_place(int directory, const std::string& name) {
  if (unlinkat(directory, name.c_str(), AT_REMOVEDIR) == 0) return true;
  const std::string aside = fmt::format("moved.{}.{}", temporary_name(), name);
  return renameat(directory, name.c_str(), directory, aside.c_str()) == 0;
}

bool rename_entry(int directory, const std::string& from, const std::string& to) {
  const auto rename = [&] { return renameat(directory, from.c_str(), directory, to.c_str()) == 0; };
  return rename() ||
         ((errno == EISDIR || errno == ENOTDIR) && clear_place(directory, to) && rename());
}

struct Found {
  std::string name;
  std::int64_t bytes;
  std::int64_t seconds, nanoseconds;  // last use
};

// Calls visit(name, stat) for each regular file of the directory.
template <class Visit>
void each_file(int directory, Visit visit) {
  const int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return;
  DIR* stream = fdopendir(copy);
  if (!stream) {
    ::close(copy);
    return;
  }
  while (const dirent* entry = readdir(stream)) {
    struct stat s {};
    if (fstatat(directory, entry->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(s.st_mode))
      visit(std::string_view(entry->d_name), s);
  }
  closedir(stream);
}

// An entry that was used lately is not the oldest when room is made.
void touch(int fd, const struct stat& s) {
  if (s.st_mtime + kTouchSeconds < time(nullptr)) futimens(fd, nullptr);
}

}  // namespace

CacheConfig cache_config_from_environment() {
  CacheConfig c;
  if (const auto limit = env_value("SINTER_CACHE_LIMIT_MB"); !limit.empty()) {
    std::int64_t megabytes = 0;
    const auto end = limit.data() + limit.size();
    const auto parsed = std::from_chars(limit.data(), end, megabytes);
    if (parsed.ec == std::errc() && parsed.ptr == end && megabytes >= 0 && megabytes < (1 << 30))
      c.limit_bytes = megabytes << 20;
  }
  if (env_value("SINTER_CACHE") == "off") {
    c.why_none = "SINTER_CACHE is off";
  } else if (const auto own = env_value("SINTER_CACHE_DIR"); !own.empty()) {
    c.directory = own;
  } else if (const auto xdg = env_value("XDG_CACHE_HOME"); xdg.starts_with('/')) {
    c.directory = xdg + "/sinter";
  } else if (const auto home = env_value("HOME"); home.starts_with('/')) {
    c.directory = home + "/.cache/sinter";
  } else {
    c.why_none = "none of SINTER_CACHE_DIR, XDG_CACHE_HOME and HOME is set";
  }
  while (c.directory.size() > 1 && c.directory.ends_with('/')) c.directory.pop_back();
  return c;
}

std::optional<std::string> DiskCache::read(const CacheKey& key) const {
  if (config_.directory.empty()) return std::nullopt;
  std::string why;
  const File directory = open_directory(config_.directory, false, why);
  if (!directory) return std::nullopt;
  const std::string name = entry_name(key);
  // O_NONBLOCK: a pipe that somebody put there must not stop us.
  const File file(
      openat(directory.fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno != ELOOP) return std::nullopt;
  struct stat s {};
  if (file && fstat(file.fd(), &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid() &&
      !(s.st_mode & (S_IWGRP | S_IWOTH)) && s.st_size <= kLargestEntry) {
    std::string bytes(static_cast<std::size_t>(s.st_size), '\0');
    if (!read_all(file.fd(), bytes)) return std::nullopt;
    if (auto body = decode_entry(key, bytes)) {
      touch(file.fd(), s);
      return body;
    }
  }
  unlinkat(directory.fd(), name.c_str(), 0);
  return std::nullopt;
}

bool DiskCache::write(const CacheKey& key, std::string_view body) {
  const auto bytes = static_cast<std::int64_t>(body.size() + kCacheHeaderBytes);
  if (config_.directory.empty() || bytes > std::min(config_.limit_bytes, kLargestEntry))
    return false;
  std::string why;
  const File directory = open_directory(config_.directory, true, why);
  if (!directory) return false;
  const std::string temporary = temporary_name();
  File file(openat(directory.fd(), temporary.c_str(),
                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return false;
  // Without fsync a power cut could leave the name with no contents; the check would find that, but
  // every start would then pay for it.
  if (!write_all(file.fd(), encode_entry(key, body)) || fsync(file.fd()) != 0 ||
      !rename_entry(directory.fd(), temporary, entry_name(key))) {
    unlinkat(directory.fd(), temporary.c_str(), 0);
    return false;
  }
  sweep(directory.fd(), bytes);
  return true;
}

// Removes what killed writers left and, past the limit, the entries that were not used for longest.
// The directory is listed at the first write and then once per 1/64 of the limit.
void DiskCache::sweep(int directory, std::int64_t written) {
  const std::int64_t so_far = since_sweep_.load();
  since_sweep_ = so_far + written;
  if (so_far >= 0 && so_far + written < config_.limit_bytes / 64) return;
  since_sweep_ = 0;
  std::vector<Found> entries;
  std::int64_t total = 0;
  const std::time_t now = time(nullptr);
  each_file(directory, [&](std::string_view name, const struct stat& s) {
    if (name.starts_with(kTemporaryPrefix)) {
      if (s.st_mtime + kStaleSeconds < now) unlinkat(directory, std::string(name).c_str(), 0);
    } else if (name.ends_with(kEntrySuffix)) {
      entries.push_back({std::string(name), s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec});
      total += s.st_size;
    }
  });
  if (total <= config_.limit_bytes) return;
  std::sort(entries.begin(), entries.end(), [](const Found& a, const Found& b) {
    return std::tie(a.seconds, a.nanoseconds, a.name) < std::tie(b.seconds, b.nanoseconds, b.name);
  });
  for (const Found& oldest : entries) {
    if (total <= config_.limit_bytes - config_.limit_bytes / 8) break;
    if (unlinkat(directory, oldest.name.c_str(), 0) == 0) total -= oldest.bytes;
  }
}

CacheStatus DiskCache::status() const {
  CacheStatus s{.directory = config_.directory,
                .reason = config_.why_none,
                .limit_bytes = config_.limit_bytes};
  if (config_.directory.empty()) return s;
  const File directory = open_directory(config_.directory, true, s.reason);
  if (!directory) return s;
  if (faccessat(directory.fd(), ".", W_OK | X_OK, AT_EACCESS) != 0)
    s.reason = reason(config_.directory);
  s.usable = s.reason.empty();
  each_file(directory.fd(), [&](std::string_view name, const struct stat& file) {
    if (!name.ends_with(kEntrySuffix)) return;
    ++s.entries;
    s.bytes += file.st_size;
  });
  return s;
}

}  // namespace sinter
