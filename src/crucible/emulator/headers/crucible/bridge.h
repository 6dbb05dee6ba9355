// How Python calls a candidate's functions: plain values, and one table of exports, instead of pybind11.
#pragma once
#ifdef CRUCIBLE_BRIDGE
#include <ATen/core/Tensor.h>
#else
#include <ATen/ATen.h>
#endif

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace crucible {

struct Value {
    enum Kind { kNone, kTensor, kBool, kInt, kFloat, kString, kList, kTuple, kScalarType, kDevice } kind = kNone;
    at::Tensor tensor;
    int64_t integer = 0;
    double real = 0;
    std::string text;
    std::vector<Value> items;

    // What each extension would have compiled again is in the runtime (a fifth of a host file's time with vectors').
    Value();
    Value(const Value&);
    Value(Value&&) noexcept;
    Value& operator=(const Value&);
    Value& operator=(Value&&) noexcept;
    ~Value();
};

struct WrongArgument {
    std::string wanted;
};

using Function = void (*)(const std::vector<Value>&, Value&);

// Defined once, in the runtime.
const at::Tensor& as_tensor(const Value&);
int64_t as_integer(const Value&);
double as_real(const Value&);
bool as_bool(const Value&);
const std::string& as_text(const Value&);
const std::vector<Value>& as_list(const Value&);
const std::vector<Value>& as_items(const Value&, size_t count);
Value from_tensor(at::Tensor);
Value from_integer(int64_t);
Value from_real(double);
Value from_bool(bool);
Value from_text(std::string);
void add_export(const char* name, Function, size_t arguments);
void wrong_count(size_t got, size_t wanted);

template <class T>
struct Convert {
    static T get(const Value& v) {
        if constexpr (std::is_same_v<T, bool>) return as_bool(v);
        else if constexpr (std::is_same_v<T, at::ScalarType>) return at::ScalarType(as_integer(v));
        else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) return T(as_integer(v));
        else if constexpr (std::is_floating_point_v<T>) return T(as_real(v));
        else static_assert(sizeof(T) == 0, "an argument of this type cannot come from Python");
    }
    static Value put(const T& v) {
        if constexpr (std::is_same_v<T, bool>) return from_bool(v);
        else if constexpr (std::is_integral_v<T>) return from_integer(int64_t(v));
        else if constexpr (std::is_floating_point_v<T>) return from_real(double(v));
        else static_assert(sizeof(T) == 0, "a result of this type cannot go to Python");
    }
};
template <>
struct Convert<at::Tensor> {
    static at::Tensor get(const Value& v) { return as_tensor(v); }
    static Value put(const at::Tensor& v) { return from_tensor(v); }
};
template <>
struct Convert<std::string> {
    static std::string get(const Value& v) { return as_text(v); }
    static Value put(const std::string& v) { return from_text(v); }
};
template <>
struct Convert<at::Scalar> {
    static at::Scalar get(const Value& v) { return v.kind == Value::kFloat ? at::Scalar(v.real) : at::Scalar(as_integer(v)); }
};
template <class T>
struct Convert<std::vector<T>> {
    static std::vector<T> get(const Value& v) {
        std::vector<T> out;
        for (const Value& item : as_list(v)) out.push_back(Convert<T>::get(item));
        return out;
    }
    static Value put(const std::vector<T>& v) {
        Value out;
        out.kind = Value::kList;
        for (const T& item : v) out.items.push_back(Convert<T>::put(item));
        return out;
    }
};
template <class T, size_t N>
struct Convert<std::array<T, N>> {
    static std::array<T, N> get(const Value& v) {
        const std::vector<Value>& items = as_items(v, N);
        std::array<T, N> out;
        std::transform(items.begin(), items.end(), out.begin(), Convert<T>::get);
        return out;
    }
    static Value put(const std::array<T, N>& v) { return Convert<std::vector<T>>::put({v.begin(), v.end()}); }
};
template <class T>
struct Convert<std::optional<T>> {
    static std::optional<T> get(const Value& v) {
        if (v.kind == Value::kNone) return std::nullopt;
        return Convert<T>::get(v);
    }
    static Value put(const std::optional<T>& v) { return v ? Convert<T>::put(*v) : Value{}; }
};
template <class... T>
struct Convert<std::tuple<T...>> {
    static std::tuple<T...> get(const Value& v) {
        return of(as_items(v, sizeof...(T)), std::index_sequence_for<T...>{});
    }
    template <size_t... I>
    static std::tuple<T...> of(const std::vector<Value>& items, std::index_sequence<I...>) {
        return {Convert<T>::get(items[I])...};
    }
    static Value put(const std::tuple<T...>& v) {
        Value out;
        out.kind = Value::kTuple;
        std::apply([&](const auto&... one) { (out.items.push_back(Convert<std::decay_t<decltype(one)>>::put(one)), ...); }, v);
        return out;
    }
};
template <class A, class B>
struct Convert<std::pair<A, B>> {
    static std::pair<A, B> get(const Value& v) {
        const std::vector<Value>& items = as_items(v, 2);
        return {Convert<A>::get(items[0]), Convert<B>::get(items[1])};
    }
    static Value put(const std::pair<A, B>& v) { return Convert<std::tuple<A, B>>::put(std::tuple<A, B>(v)); }
};
template <>
std::vector<at::Tensor> Convert<std::vector<at::Tensor>>::get(const Value&);
template <>
Value Convert<std::vector<at::Tensor>>::put(const std::vector<at::Tensor>&);
template <class T>
struct Owned { using type = T; };
template <class T>
struct Owned<c10::ArrayRef<T>> { using type = std::vector<T>; };

template <class T>
using Stored = typename Owned<std::remove_cvref_t<T>>::type;

template <class R, class... A, size_t... I>
void invoke(R (*function)(A...), const std::vector<Value>& values, Value& result, std::index_sequence<I...>) {
    if (values.size() != sizeof...(A)) wrong_count(values.size(), sizeof...(A));
    std::tuple<Stored<A>...> arguments{Convert<Stored<A>>::get(values[I])...};
    if constexpr (std::is_void_v<R>) function(static_cast<A>(std::get<I>(arguments))...);
    else result = Convert<std::remove_cvref_t<R>>::put(function(static_cast<A>(std::get<I>(arguments))...));
}
template <auto F>
struct Export;
template <class R, class... A, R (*F)(A...)>
struct Export<F> {
    static void call(const std::vector<Value>& values, Value& result) { invoke(F, values, result, std::index_sequence_for<A...>{}); }
    static constexpr size_t count = sizeof...(A);
};
struct Exporter {
    Exporter(const char* name, Function call, size_t count) { add_export(name, call, count); }
};

// ---- a stand-in for pybind11's module in PYBIND11_MODULE: def() with functions is what extensions use
template <class... T>
struct Pack {};
struct Module {
    template <class R, class... A, class... Rest>
    Module& def(const char* name, R (*function)(A...), Rest&&...) {
        add_bound(name, reinterpret_cast<void*>(function), [](void* f, const std::vector<Value>& values, Value& result) {
            invoke(reinterpret_cast<R (*)(A...)>(f), values, result, std::index_sequence_for<A...>{});
        });
        return *this;
    }
    static void add_bound(const char* name, void* function, void (*call)(void*, const std::vector<Value>&, Value&));
    std::string doc_text;
    std::string& doc() { return doc_text; }
};

}  // namespace crucible
extern template class std::vector<crucible::Value>;
extern template class std::vector<at::Tensor>;
