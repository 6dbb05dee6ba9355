// What depends on the pretended GPU and on what nvcc made of the kernels: how many blocks fit, how launches were shaped.

static Compiled compiled_of(const void* kernel) {
    const auto found = compiled.find(kernel);
    return found == compiled.end() ? Compiled{} : found->second;
}

static int units(uint64_t amount, uint64_t unit) { return int((amount + unit - 1) / unit); }

// Blocks on one multiprocessor; src/crucible/occupancy.py has the same rules, and says whose they are.
static int by_registers(int registers, int threads) {
    const int warps = units(threads, 32), per_warp = std::max(1, units(registers * 32, 256)) * 256;
    if (registers > 255) return 0;
    return crucible_gpu.registers_per_sm / 4 / per_warp * 4 / warps;
}

static int by_shared(uint64_t bytes) {
    if (bytes > crucible_gpu.shared_per_block) return 0;
    return int(crucible_gpu.shared_per_sm / (uint64_t(units(bytes + crucible_gpu.shared_reserved, 128)) * 128));
}

static int resident_blocks(const void* kernel, int threads, uint64_t dynamic) {
    if (threads < 1 || threads > crucible_gpu.threads_per_block) return 0;
    const Compiled made = compiled_of(kernel);
    const int by_threads = crucible_gpu.threads_per_sm / (units(threads, 32) * 32);
    return std::min(std::min(by_threads, crucible_gpu.blocks_per_sm),
                    std::min(by_registers(made.registers, threads), by_shared(made.shared + dynamic)));
}

struct Configuration {
    std::string name, types;  // types: of what the arguments point to
    const void* address;
    uint64_t threads, shared;
    auto key() const { return std::tie(name, types, address, threads, shared); }
    bool operator<(const Configuration& other) const { return key() < other.key(); }
};
static std::map<Configuration, uint64_t> configurations;  // how kernels were launched -> when first
constexpr size_t kMaxConfigurations = 4096;

static void note_configuration(const Kernel& kernel, const Shape& shape, const Argument* arguments, int count) {
    if (configurations.size() >= kMaxConfigurations) return;
    const uint64_t threads = uint64_t(shape.block[0]) * shape.block[1] * shape.block[2];
    std::string types;
    for (int i = 0; i < count; ++i) types += std::string(arguments[i].type) + ",";
    configurations.emplace(Configuration{kernel.name, types, kernel.address, threads, shape.shared}, configurations.size());
}

// A line each, tabs between: when first, address, threads, dynamic shared memory, types, name.
static std::string configurations_text() {
    std::string out;
    for (const auto& [one, when] : configurations)
        out += format("%lu\t%lu\t%lu\t%lu\t", when, uintptr_t(one.address), one.threads, one.shared) + one.types + "\t" + one.name + "\n";
    return out;
}

extern "C" {
Compiled crucible_compiled(const void* kernel) { return compiled_of(kernel); }
int crucible_resident_blocks(const void* kernel, int threads, size_t dynamic) { return resident_blocks(kernel, threads, dynamic); }
// ---- for Python
void crucible_set_compiled(const void* kernel, int registers, uint64_t shared, uint64_t local) {
    compiled[kernel] = {registers, shared, local};
}
char* crucible_configurations() { return strdup(configurations_text().c_str()); }
}
