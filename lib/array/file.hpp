// Files that the user names, in and out. Nothing else in the library opens such a path.
#pragma once
#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "sinter/base/result.hpp"

namespace sinter {

// A regular file or a pipe, read once from its begin. A device is refused, because it need not end;
// of a pipe, whose length nobody knows, no more is read than is asked for.
class InputFile {
 public:
  static Result<InputFile> open(const std::string& path);

  // Of a regular file, as it was when it was opened; 0 of a pipe, and of files that state none
  // (/proc).
  std::size_t stated_bytes() const { return stated_; }
  // The next n bytes; fewer only where the file ends.
  Result<std::string> read(std::size_t n);
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  InputFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::size_t stated_ = 0;
};

// The whole file; one of more than `most` bytes is an error.
Result<std::string> read_file(const std::string& path, std::size_t most = std::size_t{1} << 31);

// Written to a new file of a random name beside the target, which then takes the target's name: a
// reader never sees half of it, and a failure leaves what was there. A file that is replaced hands
// on its mode (and owner, where allowed); a new one has what the umask leaves of 0666. Symbolic
// links are followed, so the link stays and its target is replaced. Pipes and devices are written
// to directly. Rule file_write: the path cannot be opened; output_lost: no room, or a broken pipe.
Status write_file(const std::string& path, std::string_view bytes);

}  // namespace sinter
