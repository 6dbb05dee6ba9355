// c10::str, which TORCH_CHECK words its messages by, with its stream in the runtime: g++ took 0.4 s for an
// std::ostringstream of each combination of types.
#pragma once
#include <c10/util/StringUtil.h>

namespace crucible {

// What has been put so far; defined in the runtime.
struct Message {
    std::ostream& to;
    Message();
    Message(const Message&) = delete;
    ~Message();
    std::string text() const;
};
void put(std::ostream&, const char*);
void put(std::ostream&, const std::string&);
template <class T>
void put(std::ostream& to, const T& part) { c10::detail::_str(to, part); }

}  // namespace crucible

namespace c10::detail {
template <class A, class B, class... More>
struct _str_wrapper<A, B, More...> final {
    __attribute__((noinline, cold, no_sanitize("alignment"), no_sanitize("thread")))
    static std::string call(const A& first, const B& second, const More&... more) {
        crucible::Message message;
        crucible::put(message.to, first);
        crucible::put(message.to, second);
        (crucible::put(message.to, more), ...);
        return message.text();
    }
};
}  // namespace c10::detail
