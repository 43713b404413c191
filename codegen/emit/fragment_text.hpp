// What a thread holds at a vector of the domain as text, and how it moves between memory and there.
#pragma once
#include <set>

#include "emit/body_text.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {

// All live statements in order.
void print_statements(TextWriter& out, const BodyText& body, const std::vector<bool>& live);

// struct Fragment.
void print_fragment(TextWriter& out, const ScheduledKernel& kernel, const KernelNames& names,
                    const BodyText& body);

// A function that moves packs between memory and a vector: `ports` through `verb`, then `more`
// lines.
void print_moves(TextWriter& out, const KernelNames& names, const BodyText& body,
                 std::string_view verb, std::string_view constness, const std::set<int>& ports,
                 std::string_view function, const std::vector<std::string>& more = {});

// A function that cuts what is fetched in aligned pieces out of them, for those of the ports that
// are.
void print_cut(TextWriter& out, const KernelNames& names, const Packing& packing,
               const std::set<int>& ports, std::string_view function);

// The functions that draw random numbers, those of `first` and those of `again`, where there are
// any.
void print_draws(TextWriter& out, const BodyText& body, const std::vector<int>& first,
                 const std::vector<int>& again = {});

// A function that asks for what lies at a vector to come to the cache.
void print_prefetch(TextWriter& out, const KernelNames& names, const BodyText& body,
                    const std::set<int>& ports);

// The live random statements whose numbers are drawn for whole vectors.
std::vector<int> drawn_numbers(const BodyText& body, const std::vector<bool>& live);

// The ports with a pack of the packed loads or stores among the statements; those that pass through
// a tile, or those that do not.
std::set<int> packed_ports(const BodyText& body, const std::vector<bool>& live, StatementKind kind,
                           bool staged = false);

}  // namespace sinter
