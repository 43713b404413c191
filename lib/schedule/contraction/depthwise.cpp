#include "schedule/contraction/depthwise.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "plan/access.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

constexpr int kThreads = 128;
constexpr int kMostTaps = 64;                // whose factors, or sums, are registers of a thread
constexpr int kMostPacked = 8;               // pixels of a line that are stored at once
constexpr std::int64_t kMostInGroup = 32;    // channels, which are taken one after another
constexpr std::int64_t kMostSide = 1 << 20;  // coordinates are 32 bits wide

bool may_be_multiplied(DataType t) {
  switch (t) {
    case DataType::f32:
    case DataType::bf16:
    case DataType::f16:
    case DataType::f8e4m3:
    case DataType::f8e5m2:
    case DataType::i8:
    case DataType::u8:
      return true;
    default:
      return false;
  }
}

// The batch index that counts channels: along which all that is walked over lies together, or else
// the one whose filters are others. -1: none. Of a filter that lies as it likes, `b` is null.
int channel_of(const ContractionSpec& c, const Access& a, const Access* b, const Access& filter) {
  for (int i = 0; i < c.batch; ++i)
    if (a.stride[i] == 1 && (!b || b->stride[i] == 1)) return i;
  for (int i = c.batch - 1; i >= 0; --i)
    if (filter.stride[i] != 0) return i;
  return -1;
}

// The index of a group's channels, which are summed over, or in a gradient lie beside the taps; -1:
// it has one. Nothing where the spec is no convolution in groups; `several`: of channels or
// filters.
std::optional<int> channels_of_group(const KernelSpec& spec, bool several) {
  const ContractionSpec* const c = spec.as_contraction();
  if (!c || !is_single_product(*c) || c->marked_zeros || !spec.cross_row_reductions.empty() ||
      c->batch == 0 || c->k() == 0 || reads_joined_indices(spec))
    return {};
  int channels = -1;
  const bool gradient = c->k_indices.front() == KIndex::pixels;
  for (int i = 0; i < c->k(); ++i) {
    const KIndex what = c->k_indices[static_cast<std::size_t>(i)];
    if (what == (gradient ? KIndex::pixels : KIndex::filter_tap)) continue;
    if (gradient || what != KIndex::channels || channels >= 0) return {};
    channels = c->first_k() + i;
  }
  const int filters = gradient ? c->m : c->n;
  if (filters > 1 || (gradient && c->n == 0)) return {};
  if (gradient &&
      several) {  // which of the columns are no taps: groups lie as far apart as these reach
    const KernelPort* const image = loaded_as_it_is(spec, c->b().body);
    if (!image) return {};
    for (int i = c->first_n(); i < c->first_k(); ++i)
      for (int g = 0; g < c->batch; ++g)
        if (image->access.stride[i] > 0 &&
            image->access.stride[i] * spec.extent[i] == image->access.stride[g])
          channels = i;
  }
  if ((filters > 0 || channels >= 0) != several) return {};
  if (channels >= 0 && spec.extent[channels] > kMostInGroup) return {};
  return channels;
}

constexpr int kMostLanes = 32, kFewestLanes = 8;

// Threads side by side along channels, at most so many: those that waste few. 8 of them move 32
// bytes at a time, of which the second-level cache takes fewer than of longer pieces. (144 channels
// of bf16, 3 x 3, stride 2, on an H200: 52 us, 45.5 with 16.)
int lanes_for(std::int64_t channels, int each, int most) {
  int best = 0;
  double least = 0;
  for (int lanes = most; lanes >= kFewestLanes; lanes /= 2) {
    const double all = std::ceil(static_cast<double>(channels) / (lanes * each)) * lanes * each,
                 waste = all / static_cast<double>(channels) - 1;
    if (best == 0 || waste < least - 0.15) least = waste, best = lanes;
  }
  return best;
}

// Gradients, which only read, waste more for whole lines of 128 bytes where each image's are two
// thread blocks an SM. (144 channels of bf16, 3 x 3, on an H200, with 16 lanes and 32: 128 images
// of 56 x 56, stride 1 82 and 74 us, stride 2 56 and 40; of 64 images 24.5 and 29.)
bool reads_whole_lines(std::int64_t channels, int each, double images, const DeviceModel& device) {
  constexpr double kMostWasted = 1.34;
  const double line = kMostLanes * each, all = static_cast<double>(channels),
               blocks = std::ceil(all / line);
  return images * blocks >= 2 * device.sms && blocks * line <= kMostWasted * all;
}

}  // namespace

double bytes_of(const KernelSpec& spec, const DepthwiseConfig& e, double image_elements) {
  double bytes = 0;
  for (std::size_t i = 0; i < spec.ports.size(); ++i) {
    const KernelPort& p = spec.ports[i];
    bytes +=
        info(p.type).bytes * (static_cast<int>(i) == e.image.port
                                  ? image_elements
                                  : static_cast<double>(elements_reached(spec.extent, p.access)));
  }
  return bytes;
}

void put_channel_last(KernelSpec& spec, int channel) {
  std::vector<int> order;
  const int batch = spec.contraction().batch;
  for (int i = 0; i < spec.extent.size(); ++i) {
    if (i == batch) order.push_back(channel);
    if (i != channel) order.push_back(i);
  }
  if (spec.extent.size() == batch) order.push_back(channel);
  reorder(spec, order);
}

int taps_of(const KernelSpec& spec, const std::optional<ImageDim>& d) {
  return d && d->tap_index >= 0 ? static_cast<int>(spec.extent[d->tap_index]) : 1;
}

namespace {

// Whether channels lie together in what threads beside each other load or store.
bool channels_together(const KernelSpec& spec, const DepthwiseConfig& e, int beside) {
  if (e.gradient)
    return spec.ports[static_cast<std::size_t>(e.other.port)].access.stride[beside] == 1;
  return std::all_of(spec.ports.begin(), spec.ports.end(), [&](const KernelPort& p) {
    return !p.written || step(p.access, beside) == 1;
  });
}

// The steps of planning one, in order; what returns a bool says whether it is such a convolution.
class DepthwiseSearch {
 public:
  DepthwiseSearch(const KernelSpec& given, bool groups, const DeviceModel& device)
      : spec_(given), groups_(groups), device_(device) {}

  std::optional<DepthwisePlan> make() {
    if (!find_operands() || !find_dims() || !find_widths()) return {};
    memory_ = bytes_of(spec_, e_, image_elements_) / (kWindowsReach * device_.memory_bandwidth);
    try_ordinary_cores();
    e_ = with_width(widths_.back(), most_lanes());
    try_planes();
    if (!groups_) try_lines();
    if (!groups_ && (dims_.size() == 2 || (dims_.size() == 1 && !e_.gradient)))
      try_one_or_two_dims();
    else if (!groups_ && !e_.gradient && dims_.size() == 3)
      try_volume();
    if (!best_) return {};
    return DepthwisePlan{std::move(spec_), *std::move(best_)};
  }

 private:
  KernelSpec spec_;
  DepthwiseConfig e_;  // what all engines have
  const bool groups_;
  const DeviceModel& device_;
  const KernelPort *image_ = nullptr, *other_ = nullptr;
  int of_group_ = -1;  // the index of a group's channels
  int filters_ = -1, beside_ = -1;
  std::vector<ImageDim> dims_;
  double image_elements_ = 0;
  std::vector<int> widths_{1};  // channels of a thread
  double memory_ = 0;           // microseconds
  std::optional<DepthwiseEngine> best_;
  double best_microseconds() const { return config_of(*best_).microseconds; }

  bool find_operands() {
    const auto of_group = channels_of_group(spec_, groups_);
    if (!of_group) return false;
    of_group_ = *of_group;
    const ContractionSpec& c = spec_.contraction();
    e_.gradient = c.k_indices.front() == KIndex::pixels;
    image_ = loaded_port(spec_, e_.gradient ? c.b() : c.a(), e_.image.port);
    other_ = loaded_port(spec_, e_.gradient ? c.a() : c.b(), e_.other.port);
    if (!image_ || !other_ || !other_->access.windows.empty() || !may_be_multiplied(image_->type) ||
        !may_be_multiplied(other_->type) ||
        !sums_as_right_in_f32(spec_, image_->type, other_->type))
      return false;
    const int found =
        channel_of(c, image_->access, e_.gradient ? &other_->access : nullptr, other_->access);
    if (found < 0) return false;
    put_channel_last(spec_, found);
    e_.channel = c.batch - 1;
    filters_ = index_of_filters(c);
    beside_ = filters_ < 0 ? e_.channel : filters_;
    return true;
  }

  bool find_dims() {
    const ContractionSpec& c = spec_.contraction();
    ConvolutionRoles roles;
    for (int i = 0; i < e_.channel; ++i) roles.batch.push_back(i);
    roles.channels = {e_.channel};
    for (int i = c.first_m(); i < spec_.extent.size(); ++i)
      if (i != filters_ && i != of_group_)
        ((i >= c.first_k()) == e_.gradient ? roles.pixels : roles.taps).push_back(i);
    roles.pixels_in_k = e_.gradient;
    int image_index = -1;
    std::int64_t offset = 0;
    auto dims = image_dims(spec_, roles, image_->access, image_index, offset);
    if (!dims) return false;
    dims_ = std::move(*dims);
    image_elements_ = elements(spec_.extent, 0, c.batch) *
                      (image_index < 0 ? 1 : static_cast<double>(spec_.extent[image_index]));
    if (of_group_ >= 0 && !loop_over_group()) return false;
    std::size_t tapped = 0;
    for (const ImageDim& d : dims_) {
      // A part of the image sees as much of it as its pixels do.
      image_elements_ *= d.parts.empty()
                             ? static_cast<double>(d.extent)
                             : seen(spec_, d, static_cast<int>(spec_.extent[d.pixel_index]));
      if (d.extent >= kMostSide || spec_.extent[d.pixel_index] >= kMostSide) return false;
      tapped += d.tap_index >= 0;
      if (!d.parts.empty() && (!e_.gradient || d.divisor > 1)) return false;
    }
    if (tapped != roles.taps.size()) return false;
    // Groups have taps: products of batches of matrices have none. A thread block loads the filter
    // of its channels once, for all batch entries.
    if (groups_ && roles.taps.empty()) return false;
    for (int i = 0; i < e_.channel && !e_.gradient; ++i)
      if (other_->access.stride[i] != 0) return false;
    e_.image.offset = image_->access.offset + offset;
    return taps_of(spec_, dims_.back()) <= kMostTaps;
  }

  // A group's channels are looped over as taps are.
  bool loop_over_group() {
    const Access& a = image_->access;
    if (a.stride[of_group_] < 1 ||
        std::any_of(a.windows.begin(), a.windows.end(),
                    [&](const Window& w) { return w.coefficient[of_group_] != 0; }))
      return false;
    image_elements_ *= static_cast<double>(spec_.extent[of_group_]);
    ImageDim channels;
    channels.tap_index = of_group_;
    channels.tap = 1;
    channels.extent = spec_.extent[of_group_];
    channels.stride = a.stride[of_group_];
    e_.looped.push_back(std::move(channels));
    return true;
  }

  // Channels lie together, or else pixels of a line do.
  bool together(const KernelPort& p, int width) const {
    return common_step(spec_, p.access, beside_, width) == 1 &&
           alignment(spec_, p, beside_, width) == width;
  }
  bool walked(int width) const {
    return (filters_ >= 0 || together(*image_, width)) &&
           (!e_.gradient || together(*other_, width));
  }
  bool find_widths() {
    e_.threads = kThreads;
    if (groups_ ? channels_together(spec_, e_, beside_) : walked(1)) {
      const bool two_bytes = info(image_->type).bytes == 2,
                 wide = groups_ || !two_bytes || dims_.size() != 2;
      const auto fits = [&](int width) {
        return spec_.extent[beside_] % width == 0 && walked(width);
      };
      if (fits(2)) widths_ = wide ? std::vector{1, 2} : std::vector{2};
      if (wide && (groups_ || !two_bytes) && fits(4)) widths_.push_back(4);
      e_.lanes = 0;
      return true;
    }
    e_.lanes = 1;
    e_.along_columns = !e_.gradient;
    return dims_.back().stride == 1;
  }

  std::int64_t channels() const {
    return spec_.extent[e_.channel] * (filters_ < 0 ? 1 : spec_.extent[filters_]);
  }
  int most_lanes() const { return e_.gradient ? kMostLanes / 2 : kMostLanes; }
  DepthwiseConfig with_width(int each, int most) const {
    DepthwiseConfig w = e_;
    w.each = each;
    w.packing = w.along_columns ? choose_packing(spec_, dims_.back().pixel_index, kMostPacked)
                                : choose_packing(spec_, beside_, each);
    if (w.lanes == 1) return w;
    w.lanes = lanes_for(channels(), each, most);
    const double images = elements(spec_.extent, 0, e_.channel) *
                          elements(spec_.extent, spec_.contraction().first_k(),
                                   spec_.extent.size() - static_cast<int>(dims_.size()));
    if (e_.gradient && reads_whole_lines(channels(), each, images, device_)) w.lanes = kMostLanes;
    return w;
  }

  void try_ordinary_cores() {
    const auto walk = [&](const DepthwiseConfig& w) {
      auto with = walked_on_ordinary_cores(spec_, w, dims_, memory_, device_);
      if (with && (!best_ || with->microseconds < best_microseconds())) best_ = std::move(with);
    };
    for (const int each : widths_) walk(with_width(each, most_lanes()));
    if (!best_ && e_.lanes != 1) walk(with_width(1, kFewestLanes));  // a large filter
  }

  // The estimates of loads to registers are too short where a pack is few bytes: planes of such
  // lines are taken where they were measured to be faster.
  void try_planes() {
    auto planes = e_.gradient ? plan_depthwise_planes_gradient(spec_, e_, dims_, memory_, device_)
                              : plan_depthwise_planes(spec_, e_, dims_, memory_, device_);
    if (!planes) return;
    const bool sure = of_group_ < 0 && (planes->gradient || planes->narrow);
    if (device_.overrides.depthwise == "planes" ||
        (device_.overrides.depthwise.empty() &&
         (!best_ || sure || planes->microseconds < best_microseconds())))
      best_ = std::move(planes);
  }

  // Channels first, before and so, on an H200: 7 x 7, 64 x 384 x 28 x 28 70.9 and 44.8 us, 64 x 768
  // x 14 x 14 50.1 and 28.2; 5 x 5, 64 x 240 x 28 x 28 24.3 and 28.0, 64 x 144 x 56 x 56 45.7
  // and 51.0; 3 x 3, 128 x 144 x 56 x 56 88.3 and 87.8. In planes: 5 x 5, 64 x 672 x 14 x 14 37.6
  // and 26.6, stride 2 12.5 and 16.9, 64 x 1152 x 7 x 7 17.5 in these.
  void try_lines() {
    constexpr int kFewestInLines = 36, kFewestOfPlanes = 25, kWider = 8;
    auto lines = plan_depthwise_lines(spec_, e_, dims_, memory_, device_);
    if (!lines) return;
    const int taps = taps_of(spec_, lines->down) * taps_of(spec_, lines->across);
    const ImageDim& line = *lines->across;
    const bool of_planes = taps >= kFewestOfPlanes && line.pixel == 1 && line.extent > kWider &&
                           !reads_along(line.pixel_index),
               in_planes = best_ && std::holds_alternative<DepthwisePlanesConfig>(*best_),
               faster = !best_ || (in_planes ? of_planes
                                             : lines->microseconds < best_microseconds() &&
                                                   taps >= kFewestInLines);
    if (device_.overrides.depthwise.empty() ? faster : device_.overrides.depthwise == "mma")
      best_ = std::move(lines);
  }

  // Whether the epilogue reads what differs along this index.
  bool reads_along(int index) const {
    const auto& all = spec_.body.statements;
    return std::any_of(all.begin(), all.end(), [&](const Statement& s) {
      return is_load(s) && spec_.ports[static_cast<std::size_t>(s.port)].access.stride[index] != 0;
    });
  }

  // `name`: by which a test asks for it.
  void consider(std::optional<DepthwiseEngine> other, std::string_view name, bool worth) {
    const bool faster =
        worth && other && (!best_ || config_of(*other).microseconds < best_microseconds());
    if (other &&
        (device_.overrides.depthwise.empty() ? faster : device_.overrides.depthwise == name))
      best_ = std::move(other);
  }
  void try_volume() {
    DepthwiseConfig e = e_;
    e.looped = {dims_[0]};
    e.down = dims_[1];
    e.across = dims_[2];
    consider(plan_depthwise_rows(spec_, e, memory_, device_), "rows", true);
  }
  // Tensor cores, and ordinary ones with pixels by TMA.
  void try_one_or_two_dims() {
    const bool one_dim = dims_.size() == 1;
    const int vector = channels() % 4 == 0 && walked(4) ? 4 : e_.each;
    e_.down = one_dim ? ImageDim{} : dims_.front();
    e_.across = dims_.back();
    std::optional<DepthwiseEngine> mma;
    if (e_.gradient)
      mma = plan_depthwise_gradient_mma(spec_, e_, memory_, device_);
    else
      mma = plan_depthwise_mma(spec_, e_, vector, memory_, device_);
    // Few taps leave CUDA cores idle, too, and tensor cores' kernels move more through shared
    // memory, which their estimates know little of. (On an H100, ordinary and tensor cores: 128 x
    // 144 x 56 x 56, 3 x 3 101 and 98 to 126 us, its filter gradient 99 and 108 to 132; 64 x 384 x
    // 28 x 28, 7 x 7 106 and 39, its filter gradient 80 and 49.) Of one dim on an H200: 16 x 512 x
    // 1500, 9 taps 20.0 and 14.3 us, 4 x 2048 x 4096, 4 taps 38.4 and 39.0.
    constexpr int kFewestOfLine = 8;
    constexpr int kFewestTaps = 25;
    // Of single channels as groups, as long as few lanes of a line have none: 144 channels, 3 x 3,
    // on an H200 78 us in lines of 64 channels, 74 on CUDA cores; 66 in lines of
    // all 144.
    constexpr double kMostEmpty = 1.25;
    auto units = one_dim ? std::nullopt : plan_units_gradient(spec_, e_, memory_, device_);
    const double all = static_cast<double>(channels()), width = units ? 8.0 * units->lanes : 1;
    // Small images have few rows to walk down on either. (3 x 3 on an H200, pixels by TMA on CUDA
    // cores and on tensor cores: 256 x 960 x 7 x 7 19.4 and 16.9 us, 64 x 384 x 14 x 14 9.1
    // and 8.5, 128 x 144 x 56 x 56 71.1 and 73.8.)
    constexpr int kSmallLine = 16, kFewestOfSmall = 9;
    const bool small = !one_dim && !e_.gradient && e_.across->extent <= kSmallLine;
    const int taps = taps_of(spec_, e_.down) * taps_of(spec_, e_.across);
    const bool enough = taps >= (one_dim ? kFewestOfLine
                                 : small ? kFewestOfSmall
                                         : kFewestTaps),
               few_empty = std::ceil(all / width) * width <= kMostEmpty * all;
    if (!one_dim) consider(plan_depthwise_rows(spec_, e_, memory_, device_), "rows", true);
    if (mma && units && device_.overrides.depthwise == "mma" &&
        config_of(*mma).microseconds <= units->microseconds)
      units.reset();
    // The estimates of large filters' gradients are too long beside those of CUDA cores. (7 x 7 on
    // an H200, these and so: 8 x 192 x 56 x 56 55.8 and 28.2 us where 41.8 and 45.9 were estimated,
    // 64 x 768 x 7 x 7 20.0 and 15.7, 25.0 and 18.6.)
    constexpr int kManyTaps = 36;
    constexpr double kShorter = 0.85;
    if (mma && e_.gradient && taps >= kManyTaps) config_of(*mma).microseconds *= kShorter;
    consider(std::move(mma), "mma", enough);
    consider(std::move(units), "mma", few_empty);
  }
};

}  // namespace

int index_of_filters(const ContractionSpec& c) {
  const bool gradient = c.k_indices.front() == KIndex::pixels;
  return (gradient ? c.m : c.n) == 0 ? -1 : gradient ? c.first_m() : c.first_n();
}

std::optional<DepthwisePlan> plan_depthwise(const KernelSpec& spec, const DeviceModel& device) {
  return DepthwiseSearch(spec, false, device).make();
}

std::optional<DepthwisePlan> plan_channel_groups(const KernelSpec& spec,
                                                 const DeviceModel& device) {
  return DepthwiseSearch(spec, true, device).make();
}

std::optional<DepthwisePlan> plan_groups_on_tensor_cores(const KernelSpec& spec,
                                                         const DeviceModel& device) {
  if (auto gradient = plan_narrow_groups_gradient(spec, device))
    return DepthwisePlan{
        std::move(gradient->spec),
        std::visit([](auto& e) -> DepthwiseEngine { return std::move(e); }, gradient->engine)};
  if (auto groups = plan_narrow_groups(spec, device))
    return DepthwisePlan{std::move(groups->spec), std::move(groups->engine)};
  return {};
}

}  // namespace sinter
