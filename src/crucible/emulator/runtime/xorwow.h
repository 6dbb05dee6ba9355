// XORWOW's steps as a matrix over bits, so that many are taken at once: 2^67 for each subsequence.

namespace crucible {

using Bits = std::array<uint32_t, 5>;
using Steps = std::vector<Bits>;  // what each of the 160 bits becomes

static Bits stepped(Bits v) {
    const uint32_t t = v[0] ^ (v[0] >> 2);
    return {v[1], v[2], v[3], v[4], (v[4] ^ (v[4] << 4)) ^ (t ^ (t << 1))};
}

static Bits applied(const Steps& steps, const Bits& v) {
    Bits out{};
    for (int i = 0; i < 160; ++i)
        if (v[size_t(i / 32)] >> (i % 32) & 1)
            for (size_t j = 0; j < 5; ++j) out[j] ^= steps[size_t(i)][j];
    return out;
}

// The first is one step, each next twice the one before.
static const Steps& doubled(size_t times) {
    static std::vector<Steps> all;
    while (all.size() <= times) {
        Steps next(160);
        for (int i = 0; i < 160; ++i) {
            Bits one{};
            one[size_t(i / 32)] = 1u << (i % 32);
            next[size_t(i)] = all.empty() ? stepped(one) : applied(all.back(), applied(all.back(), one));
        }
        all.push_back(std::move(next));
    }
    return all[times];
}

}  // namespace crucible

extern "C" void crucible_xorwow_skip(uint32_t* state, uint64_t subsequence, uint64_t offset) {
    crucible::Bits v;
    std::copy(state, state + 5, v.begin());
    for (size_t bit = 0; bit < 64; ++bit) {
        if (subsequence >> bit & 1) v = crucible::applied(crucible::doubled(67 + bit), v);
        if (offset >> bit & 1) v = crucible::applied(crucible::doubled(bit), v);
    }
    std::copy(v.begin(), v.end(), state);
}
