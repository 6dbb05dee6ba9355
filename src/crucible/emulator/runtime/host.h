// What the host does: launches, errors, the report.

static const std::map<int, std::pair<const char*, const char*>> kErrors = {
    {0, {"cudaSuccess", "no error"}},
    {1, {"cudaErrorInvalidValue", "invalid argument"}},
    {2, {"cudaErrorMemoryAllocation", "out of memory"}},
    {9, {"cudaErrorInvalidConfiguration", "invalid configuration argument"}},
    {98, {"cudaErrorInvalidDeviceFunction", "invalid device function"}},
    {101, {"cudaErrorInvalidDevice", "invalid device ordinal"}},
    {600, {"cudaErrorNotReady", "device not ready"}},
    {700, {"cudaErrorIllegalAddress", "an illegal memory access was encountered"}},
    {701, {"cudaErrorLaunchOutOfResources", "too many resources requested for launch"}},
    {702, {"cudaErrorLaunchTimeout", "the launch timed out and was terminated"}},
    {710, {"cudaErrorAssert", "device-side assert triggered"}},
    {716, {"cudaErrorMisalignedAddress", "misaligned address"}},
    {719, {"cudaErrorLaunchFailure", "unspecified launch failure"}},
    {720, {"cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"}},
    {801, {"cudaErrorNotSupported", "operation not supported"}},
};

static size_t allowed_dynamic(const void* address) {
    auto found = allowed_shared.find(address);
    if (found != allowed_shared.end()) return found->second;
    return address ? kSharedDefault : allowed_shared_anywhere;  // deduced template: which one was allowed is unknown
}

// Why a launch is refused, with the GPU's limit; empty when it is not. Sets the error code.
static std::string refused(const Kernel& kernel, const Shape& shape, int* error) {
    const uint64_t threads = uint64_t(shape.block[0]) * shape.block[1] * shape.block[2];
    *error = 9;
    for (int i = 0; i < 3; ++i) {
        if (!shape.grid[i] || !shape.block[i])
            return format("grid (%u, %u, %u), block (%u, %u, %u): no dimension may be 0", shape.grid[0], shape.grid[1],
                          shape.grid[2], shape.block[0], shape.block[1], shape.block[2]);
    }
    if (threads > 1024 || shape.block[0] > 1024 || shape.block[1] > 1024)
        return format("block (%u, %u, %u) has %lu threads; the limit is 1024", shape.block[0], shape.block[1],
                      shape.block[2], threads);
    if (shape.block[2] > 64) return format("block of depth %u; the limit is 64", shape.block[2]);
    if (shape.grid[0] > 0x7fffffffu) return format("grid of width %u; the limit is 2147483647", shape.grid[0]);
    for (int i = 1; i < 3; ++i)
        if (shape.grid[i] > 65535) return format("grid %s is %u; the limit is 65535", i == 1 ? "y" : "z", shape.grid[i]);
    *error = 1;
    if (shape.shared > crucible_gpu.shared_per_block)
        return format("%lu bytes of dynamic shared memory; the limit of the %s is %lu", shape.shared, crucible_gpu.name,
                      crucible_gpu.shared_per_block);
    if (shape.shared > allowed_dynamic(kernel.address))
        return format("%lu bytes of dynamic shared memory; without cudaFuncSetAttribute the limit is %lu", shape.shared,
                      kSharedDefault);
    *error = 701;
    if (kernel.bounds && threads > uint64_t(kernel.bounds))
        return format("block of %lu threads; the kernel's __launch_bounds__ allow %d", threads, kernel.bounds);
    const Compiled made = compiled_of(kernel.address);
    if (made.registers && !by_registers(made.registers, int(threads)))
        return format("block of %lu threads with %d registers each; the %s has %d registers", threads, made.registers,
                      crucible_gpu.name, crucible_gpu.registers_per_sm);
    if (made.shared && !by_shared(made.shared + shape.shared))
        return format("%lu bytes of shared memory, %lu of them dynamic; the limit of the %s is %lu", made.shared + shape.shared,
                      shape.shared, crucible_gpu.name, crucible_gpu.shared_per_block);
    *error = 720;
    const uint64_t blocks = uint64_t(shape.grid[0]) * shape.grid[1] * shape.grid[2];
    const uint64_t resident = uint64_t(crucible_gpu.sms) * resident_blocks(kernel.address, int(threads), shape.shared);
    if (shape.cooperative && blocks > resident)
        return format("%lu blocks in a cooperative launch; at most %lu can be resident", blocks, resident);
    *error = 0;
    return "";
}

static bool module_of(const void* address, Launch& into) {
    Dl_info info;
    if (!dladdr(address, &info)) return false;
    into.module_base = uintptr_t(info.dli_fbase);
    into.module_file = info.dli_fname ? info.dli_fname : "";
    return true;
}

static void add_module(const void* anchor) {
    struct Search {
        uintptr_t base;
    };
    Dl_info info;
    if (!dladdr(anchor, &info)) return;
    Search search{uintptr_t(info.dli_fbase)};
    dl_iterate_phdr(
        [](dl_phdr_info* module, size_t, void* data) {
            if (module->dlpi_addr != static_cast<Search*>(data)->base) return 0;
            for (int i = 0; i < module->dlpi_phnum; ++i) {
                const auto& header = module->dlpi_phdr[i];
                const uintptr_t lo = module->dlpi_addr + header.p_vaddr;
                if (header.p_type == PT_LOAD) {
                    memory.add_region(lo & ~uintptr_t(3), (lo + header.p_memsz + 3) & ~uintptr_t(3), true, "module");
                    module_end = std::max(module_end, lo + header.p_memsz);
                }
            }
            return 1;
        },
        &search);
}

static int refuse(const Kernel& kernel, const std::string& why, int error, Launch& failed) {
    Fault fault = fault_here("launch-limits", 0, why);
    fault.kernel = kernel.name;
    fault.line = kernel.line;
    fault.fatal = error;
    fault.anchor = failed.module_file;
    unchecked = fault;
    unchecked_line = kernel.line;
    report(std::move(fault));
    last_error = error;
    return error;
}

static int run(const Kernel* kernel, const Shape* shape, void (*thread)(void*), void* closure, const Argument* arguments,
               int count) {
    Launch now{};
    now.kernel = kernel;
    now.shape = shape;
    now.thread = thread;
    now.closure = closure;
    now.arguments = arguments;
    now.count = count;
    module_end = 0;
    module_of(kernel->anchor, now);
    add_module(kernel->anchor);
    for (const Region& region : memory.regions)
        if (region.is_module && region.lo >= now.module_base && region.lo < now.module_base + (256u << 20))
            module_end = std::max(module_end, region.hi);
    launched.insert(kernel->name);
    note_configuration(*kernel, *shape, arguments, count);
    ++launches;
    if (sticky_error) return last_error = sticky_error;
    int error;
    const std::string why = refused(*kernel, *shape, &error);
    if (error) return refuse(*kernel, why, error, now);
    memory.start();
    now.first_serial = now.base = next_serial;
    now.blocks = uint64_t(shape->grid[0]) * shape->grid[1] * shape->grid[2];
    order_threads(thread_order, int(shape->block[0] * shape->block[1] * shape->block[2]));
    launch = &now;
    for (int i = 0; i < count; ++i) {
        uintptr_t pointer;
        if (arguments[i].size != 8) continue;
        std::memcpy(&pointer, arguments[i].bytes, 8);
        if (!memory.owns(reinterpret_cast<void*>(pointer))) continue;
        if (const Allocation* allocation = memory.nearest(pointer))
            given_to[uintptr_t(allocation->base)] = Given{kernel->name, parameter_name(i), arguments[i].type, arguments[i].element};
    }
    if (tracing) traced::launch_begins();
    catch_signals();
    run_grid();
    release_signals();
    if (tracing) traced::launch_ends();
    settle_pending();
    launch = nullptr;
    current = nullptr;
    crucible_ids = &no_ids;
    return last_error;
}

static std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (static_cast<unsigned char>(c) >= 32) out += c;
    }
    return out + "\"";
}

static std::string place(const uint32_t* at) { return format("[%u,%u,%u]", at[0], at[1], at[2]); }

static std::string faults_json() {
    std::string out = "[";
    for (const Fault& fault : faults) {
        if (out.size() > 1) out += ",";
        out += "{\"kind\":" + quoted(fault.kind) + ",\"kernel\":" + quoted(fault.kernel) + ",\"memory\":" +
               quoted(fault.memory) + ",\"detail\":" + quoted(fault.detail) + ",\"block\":" + place(fault.block) +
               ",\"thread\":" + place(fault.thread) + ",\"file\":" + quoted(fault.anchor) +
               format(",\"pc\":%lu,\"line\":%d,\"count\":%ld,\"fatal\":%d", fault.pc, fault.line, fault.count, fault.fatal);
        if (fault.has_other)
            out += ",\"other_block\":" + place(fault.other_block) + ",\"other_thread\":" + place(fault.other_thread) +
                   format(",\"other_pc\":%lu", fault.other_pc);
        for (size_t i = 0; i < fault.samples.size(); ++i) out += format(i ? ",%lu" : ",\"samples\":[%lu", fault.samples[i]);
        out += fault.samples.empty() ? "}" : "]}";
    }
    return out + "]";
}
