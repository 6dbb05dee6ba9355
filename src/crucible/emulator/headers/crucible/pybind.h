// The names of pybind11 that extensions write in PYBIND11_MODULE; pybind11 itself costs 6 s a compile.
#pragma once
#include "bridge.h"

namespace pybind11 {
struct arg {
    constexpr explicit arg(const char*) {}
    template <class T> arg& operator=(T&&) { return *this; }
    arg& noconvert() { return *this; }
    arg& none(bool) { return *this; }
};
template <class T> struct call_guard {};
struct gil_scoped_release {};
struct gil_scoped_acquire {};
using module_ = crucible::Module;
using module = crucible::Module;
inline namespace literals { inline arg operator""_a(const char* n, size_t) { return arg(n); } }
}  // namespace pybind11
namespace py = pybind11;
#ifndef TORCH_EXTENSION_NAME
#define TORCH_EXTENSION_NAME extension
#endif
#define PYBIND11_MODULE(NAME, M)                                   \
    static void crucible_bind(crucible::Module&);                  \
    static const int crucible_bound = [] {                         \
        static crucible::Module module;                            \
        crucible_bind(module);                                     \
        return 0;                                                  \
    }();                                                           \
    static void crucible_bind(crucible::Module& M)
