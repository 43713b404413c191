// What the public headers have in place of heavy standard ones (Shared, NameSet, text()), and what
// they do not show.
#include <thread>
#include <vector>

#include "sinter/base/name_set.hpp"
#include "sinter/base/shared.hpp"
#include "sinter/base/text.hpp"
#include "sinter/graph.hpp"
#include "support/catch.hpp"

using namespace sinter;
using detail::NameSet, detail::shortened, detail::text;

namespace {

// Counts its lives. It can be neither copied nor moved, as a Graph.
struct Watched {
  Watched(int& count, int number) : alive(count), value(number) { ++alive; }
  Watched(const Watched&) = delete;
  ~Watched() { --alive; }
  int& alive;
  int value;
};

struct Unknown;  // complete only below
struct Holder {
  Shared<const Unknown> value;
};
int ended = 0;
Holder holder();

template <class G>
concept Editable = requires(G& g) {
  g.edit(0);
}
|| requires(G& g) { g.declare(TensorDesc{}); }
|| requires(G& g) { g.report(Diagnostic{}); };

}  // namespace

TEST_CASE("what edits a graph as data is not among what programs see of it") {
  STATIC_REQUIRE(Editable<const detail::GraphEditor>);
  STATIC_REQUIRE_FALSE(Editable<Graph>);
}

TEST_CASE("a shared value lives as long as one of its owners") {
  int alive = 0;
  {
    auto first = Shared<Watched>::make(alive, 7);
    CHECK(alive == 1);
    {
      const Shared<Watched> second = first;
      CHECK(second.get() == first.get());
      second->value = 8;
    }
    CHECK(alive == 1);
    CHECK((*first).value == 8);
    first = {};
    CHECK(alive == 0);
    CHECK_FALSE(first);
  }
  CHECK(alive == 0);
}

TEST_CASE("owners are moved and assigned, also to themselves") {
  int alive = 0;
  auto a = Shared<Watched>::make(alive, 1), b = Shared<Watched>::make(alive, 2);
  auto& same = a;
  a = same;
  CHECK(a->value == 1);
  a = std::move(same);
  REQUIRE(a);
  CHECK(a->value == 1);
  b = a;  // the second value has no owner now
  CHECK(alive == 1);
  auto c = std::move(a);
  CHECK_FALSE(a);
  CHECK(c.get() == b.get());
  b = std::move(c);
  CHECK_FALSE(c);
  CHECK(b->value == 1);
  a = b;
  b = {};
  CHECK(alive == 1);
  a = {};
  CHECK(alive == 0);
}

TEST_CASE("an empty owner can be copied, moved and dropped") {
  Shared<int> none, copy = none, moved = std::move(none);
  copy = moved;
  moved = copy;
  CHECK_FALSE(copy);
  CHECK(moved.get() == nullptr);
}

TEST_CASE("the last owner ends a value whose type it does not know") {
  ended = 0;
  {
    const Holder h = holder();
    const Holder other = h;
    CHECK(ended == 0);
  }
  CHECK(ended == 1);
}

TEST_CASE("threads copy and drop owners of one value at once") {
  int alive = 0;
  auto shared = Shared<Watched>::make(alive, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([owner = shared] {
      std::vector<Shared<Watched>> owners;
      for (int i = 0; i < 20000; ++i) {
        owners.push_back(owner);
        if (i % 3 == 0) owners.clear();
      }
    });
  shared = {};
  for (auto& t : threads) t.join();
  threads.clear();
  CHECK(alive == 0);
}

namespace {

struct Unknown {
  ~Unknown() { ++ended; }
};
Holder holder() { return {Shared<const Unknown>::make()}; }

}  // namespace

TEST_CASE("texts are put together from words and numbers") {
  const std::string word = "word";
  CHECK(text({}).empty());
  CHECK(text({"a ", word, std::string_view(" b"), " ", -1, " ", 2u, " ", std::int64_t{1} << 40, " ",
              word.size()}) == "a word b -1 2 1099511627776 4");
}

TEST_CASE("a set of names tells which it has, however many more come than expected") {
  for (const int expected : {0, 1, 1000}) {
    NameSet names(static_cast<std::size_t>(expected));
    CHECK_FALSE(names.contains(""));
    for (int i = 0; i < 500; ++i) CHECK(names.insert(std::to_string(i)));
    for (int i = 0; i < 500; ++i) CHECK_FALSE(names.insert(std::to_string(i)));
    CHECK(names.contains("499"));
    CHECK_FALSE(names.contains("500"));
    CHECK(names.insert(""));
    CHECK(names.contains(""));
  }
}

TEST_CASE("a long text is quoted by its begin and its length, and no letter is cut") {
  CHECK(shortened("abc", 3) == "abc");
  CHECK(shortened("abcd", 3) == "abc.. (4 bytes)");
  CHECK(shortened("ab\xc3\xa4z", 3) == "ab.. (5 bytes)");
  CHECK(shortened(std::string(9, '\x80'), 4) == ".. (9 bytes)");
}
