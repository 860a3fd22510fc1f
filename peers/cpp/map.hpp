// Maps in memory with the interface of std::unordered_map.
#pragma once

#include "harness.hpp"

namespace race {

// A hash function of string views that also stands for that of strings, so that a lookup needs no
// copy of the key.
template <class H>
struct Hash : H {
    using is_transparent = void;
    size_t operator()(view key) const { return H::operator()(key); }
};

template <class Kind>
class MapEngine {
public:
    static constexpr bool persistent = false;

    void open(const Config&) {}
    void put(view key, view value) {
        // Hashes once.
        auto [entry, is_new] = map_.try_emplace(std::string(key), value);
        if (!is_new) entry->second.assign(value);
    }
    template <class F>
    bool get(view key, F&& found) {
        auto entry = map_.find(key);
        if (entry == map_.end()) return false;
        found(view(entry->second));
        return true;
    }
    bool erase(view key) {
        auto entry = map_.find(key);
        if (entry == map_.end()) return false;
        map_.erase(entry);
        return true;
    }
    template <class F>
    void scan(F&& each) {
        for (auto& entry : map_) each(view(entry.first), view(entry.second));
    }
    void sync() {}
    void close() { typename Kind::Map().swap(map_); }

private:
    typename Kind::Map map_;
};

}  // namespace race
