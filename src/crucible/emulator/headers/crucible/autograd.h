// PyTorch's autograd functions and its dispatcher, as extensions that are compiled against tensors alone see them: what
// they do is compiled once, in the runtime. PyTorch's own headers for them take g++ 10 s a file.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace crucible {
using Tensors = std::vector<at::Tensor>;

// PyTorch's context of a function, which lives in its node.
struct Context {
    struct Text {
        void* of;
        std::string name;
        template <class T>
            requires std::is_convertible_v<const T&, std::string>
        Text& operator=(const T& text) { return set(text); }
        Text& set(const std::string& text);
        std::string toStringRef() const;
    };
    struct SavedData {
        void* of;
        Text operator[](const std::string& name) const { return {of, name}; }
    };
    void* of;
    SavedData saved_data{of};
    void save_for_backward(const Tensors&);
    Tensors get_saved_variables() const;
    void mark_non_differentiable(const Tensors&);
    void set_materialize_grads(bool);
};
using Forward = std::function<Tensors(Context*)>;
using Backward = Tensors (*)(Context*, const Tensors&);  // a gradient for each tensor that was given
Tensors learn(const Tensors& given, const Forward&, Backward);

template <class A>
constexpr bool is_tensor = std::is_same_v<std::decay_t<A>, at::Tensor>;
template <class A>
constexpr bool is_value = std::is_arithmetic_v<std::decay_t<A>> || std::is_convertible_v<A, std::string>;

template <class T>
struct Learnable {
    template <class... A>
    static auto apply(const A&... arguments) {
        static_assert(((is_tensor<A> || is_value<A>) && ...), "optional tensors and lists take PyTorch's own headers");
        using Made = decltype(T::forward(static_cast<Context*>(nullptr), arguments...));
        Tensors given;
        (take(given, arguments), ...);
        const Tensors made = learn(given, [&](Context* context) { return Tensors{T::forward(context, arguments...)}; }, [](Context* context, const Tensors& gradients) {
            const Tensors all = T::backward(context, gradients);
            TORCH_CHECK(all.size() == sizeof...(A), "function returned an incorrect number of gradients (expected ", sizeof...(A), ", got ", all.size(), ")");
            Tensors of_tensors;
            size_t k = 0;
            (take(of_tensors, all[k++], is_tensor<A>), ...);
            return of_tensors;
        });
        if constexpr (std::is_same_v<Made, at::Tensor>) return made[0];
        else return made;
    }

private:
    template <class A>
    static void take(Tensors& to, const A& argument, bool is_wanted = is_tensor<A>) {
        if constexpr (is_tensor<A>)
            if (is_wanted) to.push_back(argument);
    }
};

struct Boxed {
    at::Tensor tensor;
    Boxed(const at::Tensor& given) : tensor(given) {}
    const at::Tensor& toTensor() const { return tensor; }
};
using Stack = std::vector<Boxed>;
struct Operator {
    std::string name, overload;
    void callBoxed(Stack&) const;
};
struct Dispatcher {
    static Dispatcher singleton() { return {}; }
    Operator findSchemaOrThrow(const char* name, const char* overload) const { return {name, overload}; }
};
}  // namespace crucible
