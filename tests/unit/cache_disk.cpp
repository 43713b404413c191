#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/disk_cache.hpp"
#include "support/catch.hpp"
#include "support/temporary_directory.hpp"

using namespace sinter;
namespace fs = std::filesystem;

namespace {

CacheKey disk_key(const std::string& text) {
  const std::string_view part = text;
  return cache_key(std::span(&part, 1));
}

struct Fixture {
  TemporaryDirectory parent;
  std::string directory = parent / "cache";
  DiskCache cache{CacheConfig{.directory = directory, .why_none = ""}};

  std::string file(const CacheKey& key) const { return directory + "/v1/" + key.hex() + ".kernel"; }
};

mode_t mode(const std::string& path) {
  struct stat s {};
  return lstat(path.c_str(), &s) == 0 ? s.st_mode & 07777 : 0;
}

void age(const std::string& path, int seconds) {
  const timespec then{time(nullptr) - seconds, 0};
  const timespec times[2] = {then, then};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
}

void overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool exists(const std::string& path) {
  return fs::symlink_status(path).type() != fs::file_type::not_found;
}

}  // namespace

TEST_CASE_METHOD(Fixture, "the disk cache keeps a kernel for itself and for other processes") {
  const CacheKey key = disk_key("k");
  CHECK_FALSE(cache.read(key));
  REQUIRE(cache.write(key, "code"));
  CHECK(cache.read(key) == "code");
  DiskCache other(CacheConfig{.directory = directory, .why_none = ""});
  CHECK(other.read(key) == "code");
  const auto status = other.status();
  CHECK(status.usable);
  CHECK(status.entries == 1);
  CHECK(status.bytes == static_cast<std::int64_t>(kCacheHeaderBytes + 4));
}

TEST_CASE_METHOD(Fixture, "the disk cache makes directories and files for their owner only") {
  umask(0);
  REQUIRE(cache.write(disk_key("k"), "code"));
  umask(022);
  CHECK(mode(directory) == 0700);
  CHECK(mode(directory + "/v1") == 0700);
  CHECK(mode(file(disk_key("k"))) == 0600);
}

TEST_CASE_METHOD(Fixture, "a damaged file in the cache is a miss, is removed, and is replaced") {
  const CacheKey key = disk_key("k");
  REQUIRE(cache.write(key, "code"));
  const std::string good = contents(file(key));
  for (const std::size_t length : {std::size_t{0}, kCacheHeaderBytes, good.size() - 1}) {
    overwrite(file(key), good.substr(0, length));
    CHECK_FALSE(cache.read(key));
    CHECK_FALSE(exists(file(key)));
  }
  REQUIRE(cache.write(key, "code"));
  CHECK(cache.read(key) == "code");
}

TEST_CASE_METHOD(Fixture, "an entry that others could have written is refused") {
  const CacheKey key = disk_key("k");
  REQUIRE(cache.write(key, "code"));
  SECTION("group-writable") { REQUIRE(chmod(file(key).c_str(), 0620) == 0); }
  SECTION("world-writable") { REQUIRE(chmod(file(key).c_str(), 0602) == 0); }
  SECTION("a symbolic link to a good entry") {
    fs::rename(file(key), parent / "elsewhere");
    fs::create_symlink(parent / "elsewhere", file(key));
  }
  SECTION("a pipe") {
    fs::remove(file(key));
    REQUIRE(mkfifo(file(key).c_str(), 0600) == 0);
  }
  SECTION("of another user") {
    if (geteuid() != 0) return;  // only root can give a file away
    REQUIRE(chown(file(key).c_str(), 12345, 12345) == 0);
  }
  CHECK_FALSE(cache.read(key));
  CHECK_FALSE(exists(file(key)));
  REQUIRE(cache.write(key, "code"));
  CHECK(cache.read(key) == "code");
}

TEST_CASE_METHOD(Fixture,
                 "a folder in the place of an entry is replaced, and kept if it is not empty") {
  const CacheKey key = disk_key("k");
  REQUIRE(cache.write(key, "code"));
  fs::remove(file(key));
  fs::create_directory(file(key));
  bool full = false;
  SECTION("empty") {}
  SECTION("not empty") {
    full = true;
    overwrite(file(key) + "/note", "mine");
  }
  CHECK_FALSE(cache.read(key));
  REQUIRE(cache.write(key, "code"));
  CHECK(cache.read(key) == "code");
  CHECK(cache.status().entries == 1);
  int notes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    notes += entry.path().filename() == "note" && contents(entry.path().string()) == "mine";
  CHECK(notes == full);
}

TEST_CASE_METHOD(Fixture, "a directory that others could write to is not used") {
  const CacheKey key = disk_key("k");
  REQUIRE(cache.write(key, "code"));
  std::string says;
  SECTION("the directory is group-writable") {
    REQUIRE(chmod(directory.c_str(), 0770) == 0);
    says = "can be written by others";
  }
  SECTION("the directory of the format is world-writable") {
    REQUIRE(chmod((directory + "/v1").c_str(), 0707) == 0);
    says = "can be written by others";
  }
  SECTION("the directory is a symbolic link") {
    fs::rename(directory, parent / "elsewhere");
    fs::create_symlink(parent / "elsewhere", directory);
    says = "cache";
  }
  SECTION("the directory belongs to another user") {
    if (geteuid() != 0) return;
    REQUIRE(chown(directory.c_str(), 12345, 12345) == 0);
    says = "belongs to user 12345";
  }
  CHECK_FALSE(cache.read(key));
  CHECK_FALSE(cache.write(disk_key("new"), "code"));
  const auto status = cache.status();
  CHECK_FALSE(status.usable);
  CHECK(status.reason.find(says) != std::string::npos);
}

TEST_CASE("a cache directory that cannot be made or written to costs nothing but the cache") {
  TemporaryDirectory parent;
  std::string directory;
  SECTION("under a file") {
    overwrite(parent / "file", "");
    directory = parent / "file" + "/cache";
  }
  SECTION("in a file system that takes no files") { directory = "/proc/sinter-cache"; }
  SECTION("read-only") {
    if (geteuid() == 0) return;  // root writes anyway
    directory = parent / "cache";
    REQUIRE(mkdir(directory.c_str(), 0700) == 0);
    REQUIRE(mkdir((directory + "/v1").c_str(), 0500) == 0);
  }
  DiskCache cache(CacheConfig{.directory = directory, .why_none = ""});
  CHECK_FALSE(cache.write(disk_key("k"), "code"));
  CHECK_FALSE(cache.read(disk_key("k")));
  CHECK_FALSE(cache.status().usable);
  CHECK_FALSE(cache.status().reason.empty());
}

TEST_CASE("a full cache makes room by removing what was not used for longest") {
  TemporaryDirectory parent;
  const std::string body(1000, 'x');
  const auto entry = static_cast<std::int64_t>(body.size() + kCacheHeaderBytes);
  DiskCache cache(
      CacheConfig{.directory = parent / "cache", .why_none = "", .limit_bytes = 8 * entry});
  for (int i = 0; i < 8; ++i) {
    const CacheKey key = disk_key(std::to_string(i));
    REQUIRE(cache.write(key, body));
    age(parent / "cache/v1/" + key.hex() + ".kernel", 100000 - i);
  }
  REQUIRE(cache.read(disk_key("0")));  // used now, so no longer the oldest
  REQUIRE(cache.write(disk_key("8"), body));
  CHECK(cache.status().bytes <= 8 * entry);
  CHECK(cache.read(disk_key("0")));
  CHECK_FALSE(cache.read(disk_key("1")));
  CHECK(cache.read(disk_key("7")));
  CHECK(cache.read(disk_key("8")));
  CHECK_FALSE(cache.write(disk_key("huge"), std::string(static_cast<std::size_t>(9 * entry), 'x')));
}

TEST_CASE_METHOD(Fixture, "what killed writers left is swept once it is old") {
  REQUIRE(cache.write(disk_key("k"), "code"));
  const std::string old = directory + "/v1/tmp.1.00", fresh = directory + "/v1/tmp.2.00";
  overwrite(old, "half");
  overwrite(fresh, "half");
  age(old, 7200);
  DiskCache next(CacheConfig{.directory = directory, .why_none = ""});
  REQUIRE(next.write(disk_key("l"), "code"));
  CHECK_FALSE(exists(old));
  CHECK(exists(fresh));
}

TEST_CASE_METHOD(Fixture, "processes and threads that share a cache read whole entries or none") {
  const auto work = [&](int seed) {
    DiskCache mine(
        CacheConfig{.directory = directory, .why_none = "", .limit_bytes = std::int64_t{1} << 18});
    int bad = 0;
    for (int i = 0; i < 60; ++i) {
      const int n = (i * 7 + seed) % 12;
      const std::string body(static_cast<std::size_t>(20000 + n), static_cast<char>('a' + n));
      if (auto read = mine.read(disk_key(std::to_string(n))); read && *read != body) ++bad;
      if (i % 3 == 0) mine.write(disk_key(std::to_string(n)), body);
    }
    return bad;
  };
  std::vector<pid_t> children;
  for (int p = 0; p < 4; ++p)
    if (const pid_t child = fork(); child == 0)
      _exit(work(p) == 0 ? 0 : 1);
    else
      children.push_back(child);
  std::atomic<int> bad{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) threads.emplace_back([&, t] { bad += work(t + 4); });
  }
  CHECK(bad == 0);
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(cache.status().entries > 0);
}

TEST_CASE_METHOD(Fixture, "a writer that is killed at any moment leaves no wrong entry") {
  int found = 0;
  // On a busy machine the first writers are killed before they have written anything.
  for (int round = 0; round < 40 || (found == 0 && round < 400); ++round) {
    const pid_t child = fork();
    if (child == 0)
      for (int i = 0;; ++i)
        cache.write(disk_key(std::to_string(i % 5)), std::string(100000, static_cast<char>(i % 5)));
    std::this_thread::sleep_for(std::chrono::microseconds(500 + 300 * round));
    REQUIRE(kill(child, SIGKILL) == 0);
    REQUIRE(waitpid(child, nullptr, 0) == child);
    for (int n = 0; n < 5; ++n) {
      const CacheKey key = disk_key(std::to_string(n));
      const bool there = exists(file(key));
      const auto read = cache.read(key);
      CHECK(read.has_value() == there);  // a file under its final name is always whole
      if (read) CHECK(*read == std::string(100000, static_cast<char>(n)));
      found += there;
    }
  }
  CHECK(found > 0);
}
