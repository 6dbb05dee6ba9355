// What kernels ask of memory, by place in the code: sectors, bank conflicts, contention. Off unless crucible_trace(1).

static bool tracing = false;
static std::string quoted(const std::string& text);
static std::string place(const uint32_t* at);

namespace traced {

constexpr uint64_t kBlocks = 32;            // followed of a larger grid: the first, the last and others at random
constexpr uint64_t kLaunches = 4;           // followed of one kernel in one shape
constexpr uint32_t kTimes = 4096;           // executions of one access between two barriers
constexpr size_t kHeld = 1 << 17;           // requests whose lanes are not all there yet: 35 MB
constexpr size_t kShapes = 256, kPlaces = 4096, kAddresses = 1 << 18;
constexpr int kKinds = 4;                   // of matrix products: 16 bits, TF32, float64, 8 bits
enum Operation : uint64_t { kLoad, kStore, kAtomicOperation };

// One instruction of a warp: the k-th time that each of its lanes came by since the last barrier.
struct Request {
    uint32_t lanes = 0;
    uintptr_t at[32];
};
struct Place {
    uint32_t times[32] = {};
    std::vector<Request> requests;
};
// A place is pc | width:5 | shared:1 | operation:2.
static uint64_t place_of(uintptr_t pc, size_t width, bool shared, Operation operation) {
    return uint64_t(pc) << 8 | width << 3 | uint64_t(shared) << 2 | operation;
}
static size_t width_of(uint64_t place) { return place >> 3 & 31; }
static bool is_shared(uint64_t place) { return place >> 2 & 1; }
static bool is_atomic(uint64_t place) { return (place & 3) == kAtomicOperation; }

struct Totals {
    uint64_t requests = 0, bytes = 0, sectors = 0, ideal_sectors = 0, wavefronts = 0, ideal_wavefronts = 0, worst_ways = 0;
    uint64_t atomics = 0, worst_in_warp = 0, worst_on_address = 0;
};
using Counts = std::unordered_map<uintptr_t, uint64_t>;  // atomic operations by address

struct Followed {  // a block
    std::vector<std::unordered_map<uint64_t, Place>> warps;
    std::unordered_map<uint64_t, Counts> atomics;
};
struct Shaped {  // all launches of one kernel in one shape
    std::string kernel;
    uint32_t grid[3], block[3];
    uint64_t shared, count = 0, followed_launches = 0, followed_blocks = 0, dropped = 0;
    uint64_t accesses = 0, sectors = 0, l1_wavefronts = 0;  // of followed blocks
    uint64_t touched_sectors = 0, products[kKinds] = {};    // of followed launches, all blocks
};

static std::vector<Shaped> shapes;
static std::map<std::tuple<std::string, std::string, uint64_t>, Totals> places;  // module, kernel, place
// Of the launch that runs now:
static Shaped* now = nullptr;
static std::set<uint64_t> wanted;
static std::unordered_map<const Block*, Followed> blocks;
static std::unordered_map<uint64_t, Counts> atomics;
static size_t held = 0, addresses = 0;
static uint64_t* seen_sectors = nullptr;  // of the arena, a bit each
static std::set<uintptr_t> seen_elsewhere;

static Totals* totals_of(uint64_t place) {
    const auto key = std::make_tuple(launch->module_file, std::string(launch->kernel->name), place);
    auto found = places.find(key);
    if (found != places.end()) return &found->second;
    return places.size() < kPlaces ? &places[key] : nullptr;
}

// Which pieces of memory of `unit` bytes some lanes touch.
static std::vector<uintptr_t> units(const Request& request, int from, int to, size_t width, size_t unit) {
    std::vector<uintptr_t> all;
    for (int lane = from; lane < to; ++lane)
        if (request.lanes >> lane & 1)
            for (uintptr_t at = request.at[lane] / unit; at <= (request.at[lane] + width - 1) / unit; ++at) all.push_back(at);
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

static void count_sectors(const Request& request, size_t width, Totals& into) {
    into.sectors += units(request, 0, 32, width, 32).size();
    into.ideal_sectors += (units(request, 0, 32, 1, width).size() * width + 31) / 32;
}

// A wavefront serves each of 32 banks once; wide accesses come by half and quarter warps. A word read twice is one.
static void count_wavefronts(const Request& request, size_t width, Totals& into) {
    const int lanes = width == 16 ? 8 : width == 8 ? 16 : 32;
    for (int from = 0; from < 32; from += lanes) {
        uint64_t in_bank[32] = {}, ways = 0;
        for (uintptr_t word : units(request, from, from + lanes, width, 4)) ways = std::max(ways, ++in_bank[word % 32]);
        into.wavefronts += ways;
        into.ideal_wavefronts += ways > 0;
        into.worst_ways = std::max(into.worst_ways, ways);
    }
}

static uint64_t most_at_one(const Request& request) {
    uint64_t most = 0;
    Counts lanes;
    for (int lane = 0; lane < 32; ++lane)
        if (request.lanes >> lane & 1) most = std::max(most, ++lanes[request.at[lane]]);
    return most;
}

static void fold(const Request& request, uint64_t place, Totals& into) {
    const uint64_t lanes = uint64_t(__builtin_popcount(request.lanes));
    const uint64_t sectors = into.sectors, wavefronts = into.wavefronts;
    ++into.requests;
    into.bytes += lanes * width_of(place);
    if (is_shared(place)) count_wavefronts(request, width_of(place), into);
    else count_sectors(request, width_of(place), into);
    now->accesses += lanes;
    now->sectors += into.sectors - sectors;
    now->l1_wavefronts += into.wavefronts - wavefronts + (into.sectors - sectors + 3) / 4;
    if (!is_atomic(place)) return;
    into.atomics += lanes;
    into.worst_in_warp = std::max(into.worst_in_warp, most_at_one(request));
}

static void fold_warp(std::unordered_map<uint64_t, Place>& warp) {
    for (auto& [place, seen] : warp) {
        held -= seen.requests.size();
        Totals* into = totals_of(place);
        for (const Request& request : seen.requests)
            if (into) fold(request, place, *into);
            else now->dropped += uint64_t(__builtin_popcount(request.lanes));
    }
    warp.clear();
}

static void fold_atomics(std::unordered_map<uint64_t, Counts>& counted) {
    for (auto& [place, counts] : counted) {
        addresses -= counts.size();
        Totals* into = totals_of(place);
        for (const auto& [address, count] : counts)
            if (into) into->worst_on_address = std::max(into->worst_on_address, count);
    }
    counted.clear();
}

static void lane_executes(Followed& block, const Fiber* fiber, uint64_t place, uintptr_t address) {
    Place& here = block.warps[fiber->ids.linear / 32][place];
    const uint32_t time = here.times[fiber->ids.lane];
    if (time == here.requests.size() && time < kTimes && held < kHeld) {
        here.requests.emplace_back();
        ++held;
    }
    if (time >= here.requests.size()) {
        ++now->dropped;
        return;
    }
    ++here.times[fiber->ids.lane];
    here.requests[time].lanes |= 1u << fiber->ids.lane;
    here.requests[time].at[fiber->ids.lane] = address;
}

static void count_at(Counts& counts, uintptr_t address) {
    auto found = counts.find(address);
    if (found != counts.end()) ++found->second;
    else if (addresses < kAddresses) ++addresses, ++counts[address];
}

static bool in_global_memory(uintptr_t address) {
    return memory.owns(reinterpret_cast<void*>(address)) || memory.region_of(address);
}

// A bulk copy, as if warps made it, of 16 bytes a lane.
static void bulk(uintptr_t address, size_t size, uint64_t place) {
    Totals* into = totals_of(place);
    for (size_t from = 0; into && from < size; from += 512) {
        Request request;
        for (size_t at = from; at < std::min(from + 512, size); at += 16) {
            request.at[(at - from) / 16] = address + at;
            request.lanes |= 1u << (at - from) / 16;
        }
        fold(request, place, *into);
    }
}

// Whichever thread comes first: what is read again comes from a cache.
static void touch_sectors(uintptr_t address, size_t size) {
    if (!seen_sectors) seen_sectors = reinterpret_cast<uint64_t*>(reserve(kArenaBytes / 32 / 8));
    const uintptr_t first = address / 32, last = (address + size - 1) / 32;
    for (uintptr_t sector = first; sector <= last; ++sector) {
        const uintptr_t at = sector - uintptr_t(memory.arena) / 32;
        if (at >= kArenaBytes / 32 || !seen_sectors) {
            now->touched_sectors += seen_elsewhere.size() < kAddresses && seen_elsewhere.insert(sector).second;
        } else if (!(seen_sectors[at / 64] >> at % 64 & 1)) {
            seen_sectors[at / 64] |= uint64_t(1) << at % 64;
            ++now->touched_sectors;
        }
    }
}

static void forget_sectors() {
    if (seen_sectors) madvise(seen_sectors, kArenaBytes / 32 / 8, MADV_DONTNEED);
    seen_elsewhere.clear();
}

[[gnu::noinline]] static void note(const Fiber* fiber, uintptr_t address, size_t size, bool write, bool atomic,
                                   bool aligned, uintptr_t pc) {
    if (!now || address - uintptr_t(fiber->stack) < kStackBytes) return;
    auto found = blocks.find(fiber->block);
    Followed* block = found == blocks.end() ? nullptr : &found->second;
    const bool shared = slots && address - uintptr_t(slots) < slots_bytes;
    if (!shared && !in_global_memory(address)) return;  // the launch's arguments, or a fault that is named elsewhere
    if (!shared) touch_sectors(address, size);
    if (!block && !atomic) return;
    const Operation operation = atomic ? kAtomicOperation : write ? kStore : kLoad;
    // A GPU has no instruction for other sizes, nor for a struct of which only its elements are aligned.
    const bool one = aligned && size <= 16 && !(size & (size - 1));
    const size_t width = one ? size : size % 4 == 0 ? 4 : size % 2 == 0 ? 2 : 1;
    const uint64_t place = place_of(pc, width, shared, operation);
    if (atomic && !shared) count_at(atomics[place], address);
    if (!block) return;
    if (atomic && shared) count_at(block->atomics[place], address);
    if (size >= 128) return bulk(address, size, place_of(pc, 16, shared, operation));
    for (uintptr_t at = address; at < address + size; at += width) lane_executes(*block, fiber, place, at);
}

static void launch_begins() {
    const Shape& shape = *launch->shape;
    now = nullptr;
    for (Shaped& known : shapes)
        if (known.kernel == launch->kernel->name && !std::memcmp(known.grid, shape.grid, 12) &&
            !std::memcmp(known.block, shape.block, 12) && known.shared == shape.shared)
            now = &known;
    if (!now && shapes.size() == kShapes) return;
    if (!now) {
        shapes.push_back(Shaped{launch->kernel->name, {}, {}, shape.shared});
        now = &shapes.back();
        std::memcpy(now->grid, shape.grid, 12);
        std::memcpy(now->block, shape.block, 12);
    }
    wanted.clear();
    ++now->count;
    if (now->followed_launches == kLaunches) {
        now = nullptr;
        return;
    }
    ++now->followed_launches;
    forget_sectors();
    if (launch->blocks <= kBlocks) return;
    std::mt19937_64 draw(launch->blocks);  // the same ones each time, and none of the schedule's own chance
    wanted = {0, launch->blocks - 1};
    while (wanted.size() < kBlocks) wanted.insert(draw() % launch->blocks);
}

static void launch_ends() {
    if (now) fold_atomics(atomics);
    blocks.clear();
    held = addresses = 0;
    now = nullptr;
}

static void block_begins(const Block& block) {
    if (now && (wanted.empty() || wanted.count(block.linear))) blocks[&block].warps.resize(block.warps.size());
}

// Every lane of the block has been wherever it goes before a barrier.
static void all_arrived(const Block& block) {
    auto found = blocks.find(&block);
    if (found == blocks.end()) return;
    for (auto& warp : found->second.warps) fold_warp(warp);
}

static void thread_ended(const Block& block, size_t warp) {
    auto found = blocks.find(&block);
    if (found == blocks.end()) return;
    if (!block.warps[warp].live) fold_warp(found->second.warps[warp]);
    if (block.live) return;
    fold_atomics(found->second.atomics);
    blocks.erase(found);
    ++now->followed_blocks;
}

static void multiplied(int kind, uint64_t flops) {
    if (now) now->products[kind] += flops;
}

static void forget() {
    shapes.clear();
    places.clear();
}

static std::string shape_json(const Shaped& one) {
    return "{\"kernel\":" + quoted(one.kernel) + ",\"grid\":" + place(one.grid) + ",\"block\":" + place(one.block) +
           format(",\"shared_bytes\":%lu,\"count\":%lu,\"followed\":%lu,\"dropped\":%lu", one.shared, one.count,
                  one.followed_blocks, one.dropped) +
           format(",\"accesses\":%lu,\"sectors\":%lu,\"l1_wavefronts\":%lu,\"touched_sectors\":%lu", one.accesses,
                  one.sectors, one.l1_wavefronts, one.touched_sectors) +
           format(",\"half_flops\":%lu,\"tf32_flops\":%lu,\"float64_flops\":%lu,\"byte_flops\":%lu}", one.products[0],
                  one.products[1], one.products[2], one.products[3]);
}

static std::string place_json(const std::string& file, const std::string& kernel, uint64_t place, const Totals& all) {
    static const char* const operations[] = {"load", "store", "atomic"};
    return "{\"module\":" + quoted(file) + ",\"kernel\":" + quoted(kernel) +
           format(",\"pc\":%lu,\"operation\":\"%s\",\"space\":\"%s\",\"width\":%zu", place >> 8, operations[place & 3],
                  is_shared(place) ? "shared" : "global", width_of(place)) +
           format(",\"requests\":%lu,\"bytes\":%lu,\"sectors\":%lu,\"ideal_sectors\":%lu,\"wavefronts\":%lu,"
                  "\"ideal_wavefronts\":%lu,\"worst_ways\":%lu,\"atomics\":%lu,\"worst_in_warp\":%lu,\"worst_on_address\":%lu}",
                  all.requests, all.bytes, all.sectors, all.ideal_sectors, all.wavefronts, all.ideal_wavefronts,
                  all.worst_ways, all.atomics, all.worst_in_warp, all.worst_on_address);
}

static std::string json() {
    std::string out = "{\"launches\":[";
    for (const Shaped& one : shapes) out += (out.back() == '[' ? "" : ",") + shape_json(one);
    out += "],\"places\":[";
    for (const auto& [key, all] : places)
        out += (out.back() == '[' ? "" : ",") + place_json(std::get<0>(key), std::get<1>(key), std::get<2>(key), all);
    return out + "]}";
}

}  // namespace traced
