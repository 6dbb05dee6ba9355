// The conversions of at::Scalar's accessors, compiled once, in the runtime: g++ would instantiate 600 functions again for each
// file, of which hardly one uses any.
#pragma once
#include <c10/core/ScalarType.h>
#include <c10/util/TypeCast.h>

#ifdef CRUCIBLE_BRIDGE
#define CRUCIBLE_ONCE
#else
#define CRUCIBLE_ONCE extern
#endif
#define CRUCIBLE_CONVERTED(TO, _)                                                                     \
    CRUCIBLE_ONCE template TO checked_convert<TO, double>(double, const char*);                       \
    CRUCIBLE_ONCE template TO checked_convert<TO, c10::complex<double>>(c10::complex<double>, const char*); \
    CRUCIBLE_ONCE template TO checked_convert<TO, bool>(bool, const char*);                           \
    CRUCIBLE_ONCE template TO checked_convert<TO, int64_t>(int64_t, const char*);                     \
    CRUCIBLE_ONCE template TO checked_convert<TO, uint64_t>(uint64_t, const char*);
namespace c10 {
AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(CRUCIBLE_CONVERTED)
CRUCIBLE_CONVERTED(uint16_t, )
CRUCIBLE_CONVERTED(uint32_t, )
CRUCIBLE_CONVERTED(uint64_t, )
}  // namespace c10
#undef CRUCIBLE_CONVERTED
#undef CRUCIBLE_ONCE
