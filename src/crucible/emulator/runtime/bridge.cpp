// The Python module: PyTorch's tensors in our arena, calls into extensions.
#define CRUCIBLE_BRIDGE
#define AT_PER_OPERATOR_HEADERS  // of PyTorch's 3,000 operators the factories alone: g++ takes 20 s with all of them
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "crucible/messages.h"  // before what would instantiate them
#include "crucible/scalars.h"
#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/generated/variable_factories.h>

#include "crucible/abi.h"
#include "crucible/autograd.h"
#include "crucible/bridge.h"
#include "crucible/factories.h"

extern "C" {
void crucible_call_begins();
int crucible_call_ended(int raised);
void crucible_foreign(const void*, size_t);
void crucible_returned(const void*, size_t);
}

template class std::vector<crucible::Value>;
template class std::vector<at::Tensor>;

namespace crucible {

Message::Message() : to(*new std::ostringstream) {}
Message::~Message() { delete &to; }
std::string Message::text() const { return static_cast<std::ostringstream&>(to).str(); }
void put(std::ostream& to, const char* part) { to << part; }
void put(std::ostream& to, const std::string& part) { to << part; }

Value::Value() = default;
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() = default;

// What pybind11 refuses is refused: None is no tensor (only an optional one), a float is no integer.
const at::Tensor& as_tensor(const Value& v) {
    if (v.kind != Value::kTensor) throw WrongArgument{"torch.Tensor"};
    return v.tensor;
}
int64_t as_integer(const Value& v) {
    if (v.kind == Value::kTensor && v.tensor.numel() == 1 && !v.tensor.is_floating_point()) return v.tensor.item<int64_t>();
    if (v.kind != Value::kInt && v.kind != Value::kBool && v.kind != Value::kScalarType) throw WrongArgument{"int"};
    return v.integer;
}
double as_real(const Value& v) {
    if (v.kind == Value::kFloat) return v.real;
    if (v.kind == Value::kTensor && v.tensor.numel() == 1) return v.tensor.item<double>();
    if (v.kind != Value::kInt && v.kind != Value::kBool) throw WrongArgument{"float"};
    return double(v.integer);
}
bool as_bool(const Value& v) {
    if (v.kind == Value::kFloat) return v.real != 0;
    if (v.kind != Value::kBool && v.kind != Value::kInt && v.kind != Value::kNone) throw WrongArgument{"bool"};
    return v.integer != 0;
}
const std::string& as_text(const Value& v) {
    if (v.kind != Value::kString) throw WrongArgument{"str"};
    return v.text;
}
const std::vector<Value>& as_list(const Value& v) {
    if (v.kind != Value::kList && v.kind != Value::kTuple) throw WrongArgument{"list"};
    return v.items;
}
const std::vector<Value>& as_items(const Value& v, size_t count) {
    const std::vector<Value>& items = as_list(v);
    if (items.size() != count) throw WrongArgument{"tuple of " + std::to_string(count)};
    return items;
}
template <>
std::vector<at::Tensor> Convert<std::vector<at::Tensor>>::get(const Value& v) {
    const std::vector<Value>& items = as_list(v);
    std::vector<at::Tensor> out(items.size());
    std::transform(items.begin(), items.end(), out.begin(), as_tensor);
    return out;
}
static Value of(Value::Kind kind) {
    Value v;
    v.kind = kind;
    return v;
}
Value from_tensor(at::Tensor t) { Value v = of(t.defined() ? Value::kTensor : Value::kNone); v.tensor = std::move(t); return v; }
Value from_integer(int64_t i) { Value v = of(Value::kInt); v.integer = i; return v; }
Value from_real(double d) { Value v = of(Value::kFloat); v.real = d; return v; }
Value from_bool(bool b) { Value v = of(Value::kBool); v.integer = b; return v; }
template <>
Value Convert<std::vector<at::Tensor>>::put(const std::vector<at::Tensor>& tensors) {
    Value v = of(Value::kList);
    for (const at::Tensor& tensor : tensors) v.items.push_back(from_tensor(tensor));
    return v;
}
Value from_text(std::string s) { Value v = of(Value::kString); v.text = std::move(s); return v; }

struct Exported {
    std::string name;
    std::function<void(const std::vector<Value>&, Value&)> call;
};
static std::vector<Exported> exported;  // of all extensions; Python knows which are whose

void add_export(const char* name, Function call, size_t) { exported.push_back({name, call}); }
void Module::add_bound(const char* name, void* function, void (*call)(void*, const std::vector<Value>&, Value&)) {
    exported.push_back({name, [=](const std::vector<Value>& values, Value& result) { call(function, values, result); }});
}
void wrong_count(size_t got, size_t wanted) {
    throw WrongArgument{std::to_string(wanted) + " arguments, not " + std::to_string(got)};
}

// ---- tensors in the arena
static void give_back(void* pointer) {
    if (!pointer) return;
    c10::profiledCPUMemoryReporter().Delete(pointer);  // PyTorch's profiler counts these allocations as it does its own
    if (crucible_is_allocation(pointer)) crucible_free(pointer);
    else free(pointer);
}
struct Arena final : c10::Allocator {
    c10::DataPtr allocate(size_t bytes) override {
        if (!bytes) return {nullptr, nullptr, &give_back, c10::Device(c10::kCPU)};
        void* pointer = crucible_allocate(bytes);
        if (!pointer && posix_memalign(&pointer, 64, bytes)) TORCH_CHECK(false, "allocate memory: ", bytes, " bytes");
        c10::profiledCPUMemoryReporter().New(pointer, bytes);
        return {pointer, pointer, &give_back, c10::Device(c10::kCPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
    void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

static Value from_python(PyObject* object) {
    if (object == Py_None) return {};
    if (THPVariable_Check(object)) {
        Value v = of(Value::kTensor);
        v.tensor = THPVariable_Unpack(object);
        return v;
    }
    if (PyBool_Check(object)) return from_bool(object == Py_True);
    if (PyLong_Check(object)) return from_integer(PyLong_AsLongLong(object));
    if (PyFloat_Check(object)) return from_real(PyFloat_AsDouble(object));
    if (PyUnicode_Check(object)) return from_text(PyUnicode_AsUTF8(object));
    if (THPDtype_Check(object)) {
        Value v = of(Value::kScalarType);
        v.integer = int64_t(reinterpret_cast<THPDtype*>(object)->scalar_type);
        return v;
    }
    if (PyList_Check(object) || PyTuple_Check(object)) {
        Value v = of(PyList_Check(object) ? Value::kList : Value::kTuple);
        const Py_ssize_t count = PySequence_Size(object);
        for (Py_ssize_t i = 0; i < count; ++i)
            v.items.push_back(from_python(PyList_Check(object) ? PyList_GET_ITEM(object, i) : PyTuple_GET_ITEM(object, i)));
        return v;
    }
    if (PyIndex_Check(object)) {
        PyObject* integer = PyNumber_Index(object);
        Value v = from_integer(PyLong_AsLongLong(integer));
        Py_DECREF(integer);
        return v;
    }
    throw WrongArgument{std::string("another type than ") + Py_TYPE(object)->tp_name};
}

static PyObject* to_python(const Value& v) {
    switch (v.kind) {
        case Value::kTensor: return THPVariable_Wrap(v.tensor);
        case Value::kBool: return PyBool_FromLong(v.integer);
        case Value::kInt: return PyLong_FromLongLong(v.integer);
        case Value::kFloat: return PyFloat_FromDouble(v.real);
        case Value::kString: return PyUnicode_FromString(v.text.c_str());
        case Value::kList:
        case Value::kTuple: {
            PyObject* out = v.kind == Value::kList ? PyList_New(Py_ssize_t(v.items.size())) : PyTuple_New(Py_ssize_t(v.items.size()));
            for (size_t i = 0; i < v.items.size(); ++i) {
                PyObject* item = to_python(v.items[i]);
                if (v.kind == Value::kList) PyList_SET_ITEM(out, Py_ssize_t(i), item);
                else PyTuple_SET_ITEM(out, Py_ssize_t(i), item);
            }
            return out;
        }
        default: Py_RETURN_NONE;
    }
}

static void note_foreign(const Value& v) {
    if (v.kind == Value::kTensor && v.tensor.defined() && v.tensor.has_storage() && v.tensor.storage().data())
        crucible_foreign(v.tensor.storage().data(), v.tensor.storage().nbytes());
    for (const Value& item : v.items) note_foreign(item);
}

static void note_result(const Value& v) {
    if (v.kind == Value::kTensor && v.tensor.defined() && v.tensor.has_storage() && v.tensor.is_contiguous())
        crucible_returned(v.tensor.data_ptr(), v.tensor.nbytes());
    for (const Value& item : v.items) note_result(item);
}

// ---- autograd functions of extensions, by PyTorch's own
static torch::autograd::AutogradContext& pytorchs(void* context) { return *static_cast<torch::autograd::AutogradContext*>(context); }
Context::Text& Context::Text::set(const std::string& text) {
    pytorchs(of).saved_data[name] = text;
    return *this;
}
std::string Context::Text::toStringRef() const { return pytorchs(of).saved_data[name].toStringRef(); }
void Context::save_for_backward(const Tensors& tensors) { pytorchs(of).save_for_backward(tensors); }
void Context::mark_non_differentiable(const Tensors& tensors) { pytorchs(of).mark_non_differentiable(tensors); }
void Context::set_materialize_grads(bool value) { pytorchs(of).set_materialize_grads(value); }
static void note_foreign(const Tensors& tensors) {
    for (const at::Tensor& tensor : tensors) note_foreign(from_tensor(tensor));
}
Tensors Context::get_saved_variables() const {
    Tensors saved = pytorchs(of).get_saved_variables();
    note_foreign(saved);
    return saved;
}

struct Learned : torch::autograd::Function<Learned> {
    static Tensors forward(torch::autograd::AutogradContext* context, at::TensorList, const Forward& forward, Backward backward) {
        context->saved_data["crucible_backward"] = reinterpret_cast<int64_t>(backward);
        Context own{context};
        return forward(&own);
    }
    // Autograd calls it, not Python: what `call` does around a function is done here.
    static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
        Context own{context};
        Tensors made;
        crucible_call_begins();
        note_foreign(gradients);
        try {
            made = reinterpret_cast<Backward>(context->saved_data["crucible_backward"].toInt())(&own, gradients);
        } catch (...) {
            crucible_call_ended(1);
            throw;
        }
        for (const at::Tensor& tensor : made) note_result(from_tensor(tensor));
        const int pending = crucible_call_ended(0);
        TORCH_CHECK(!pending, "CUDA error: ", crucible_error_words(pending));
        made.resize(made.size() + 2);  // forward's arguments that are no tensors
        return made;
    }
};
Tensors learn(const Tensors& given, const Forward& forward, Backward backward) {
    return Learned::apply(at::TensorList(given), forward, backward);
}
void Operator::callBoxed(Stack& stack) const {
    torch::jit::Stack values;
    for (const Boxed& each : stack) values.push_back(each.tensor);
    c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str()).callBoxed(values);
    stack.clear();
    for (const c10::IValue& each : values) stack.push_back(each.toTensor());
}

static PyObject* call(PyObject*, PyObject* arguments) {
    Py_ssize_t which;
    PyObject* given;
    if (!PyArg_ParseTuple(arguments, "nO!", &which, &PyTuple_Type, &given)) return nullptr;
    if (which < 0 || size_t(which) >= exported.size()) return PyErr_Format(PyExc_IndexError, "no such function");
    const Exported target = exported[size_t(which)];
    std::string message;
    PyObject* kind = nullptr;
    Value result;
    crucible_call_begins();
    try {
        std::vector<Value> values;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); ++i) {
            values.push_back(from_python(PyTuple_GET_ITEM(given, i)));
            note_foreign(values.back());
        }
        target.call(values, result);
        note_result(result);
    } catch (const WrongArgument& wrong) {
        kind = PyExc_TypeError;
        message = target.name + "(): incompatible function arguments: " + wrong.wanted + " is wanted";
    } catch (const c10::IndexError& error) {
        kind = PyExc_IndexError;
        message = error.what_without_backtrace();
    } catch (const c10::Error& error) {
        kind = PyExc_RuntimeError;
        message = error.what_without_backtrace();
    } catch (const std::exception& error) {
        kind = PyExc_RuntimeError;
        message = error.what();
    }
    const int pending = crucible_call_ended(kind != nullptr);
    if (kind) {
        if (!PyErr_Occurred()) PyErr_SetString(kind, message.c_str());
        return nullptr;
    }
    PyObject* out = to_python(result);
    return out ? Py_BuildValue("Ni", out, pending) : nullptr;
}

at::Tensor empty(at::IntArrayRef size, at::TensorOptions options, Format format) { return torch::empty(size, options, format); }
at::Tensor empty_like(const at::Tensor& x, at::TensorOptions options, Format format) { return torch::empty_like(x, options, format); }
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, at::TensorOptions options) { return torch::empty_strided(size, stride, options); }
at::Tensor full(at::IntArrayRef size, const at::Scalar& value, at::TensorOptions options) { return torch::full(size, value, options); }
at::Tensor full_like(const at::Tensor& x, const at::Scalar& value, at::TensorOptions options, Format format) { return torch::full_like(x, value, options, format); }
at::Tensor ones(at::IntArrayRef size, at::TensorOptions options) { return torch::ones(size, options); }
at::Tensor ones_like(const at::Tensor& x, at::TensorOptions options, Format format) { return torch::ones_like(x, options, format); }
at::Tensor zeros(at::IntArrayRef size, at::TensorOptions options) { return torch::zeros(size, options); }
at::Tensor zeros_like(const at::Tensor& x, at::TensorOptions options, Format format) { return torch::zeros_like(x, options, format); }

static PyObject* load(PyObject*, PyObject* arguments) {
    const char* path;
    if (!PyArg_ParseTuple(arguments, "s", &path)) return nullptr;
    const size_t before = exported.size();
    if (!dlopen(path, RTLD_NOW | RTLD_LOCAL)) return PyErr_Format(PyExc_ImportError, "%s", dlerror());
    PyObject* out = PyDict_New();
    for (size_t i = before; i < exported.size(); ++i) {
        PyObject* number = PyLong_FromSize_t(i);
        PyDict_SetItemString(out, exported[i].name.c_str(), number);
        Py_DECREF(number);
    }
    return out;
}

static PyObject* use_arena(PyObject*, PyObject*) {
    static Arena arena;
    c10::SetCPUAllocator(&arena, 100);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"call", call, METH_VARARGS, "call(which, arguments) -> (result, pending CUDA error)"},
    {"load", load, METH_VARARGS, "load(path) -> {name: which}"},
    {"use_arena", use_arena, METH_NOARGS, "PyTorch allocates CPU tensors where the emulator can see them"},
    {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "crucible_emulator", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace crucible

PyMODINIT_FUNC PyInit_crucible_emulator() { return PyModule_Create(&crucible::definition); }
