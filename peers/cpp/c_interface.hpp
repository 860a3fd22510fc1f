// An engine of the harness behind the interface in C (`c/engine.h`): each call is one through a
// pointer, and copies the value to the caller.
#pragma once

#include "../c/engine.h"

namespace race {

// What the last failure was about.
inline std::string& failure() {
    static thread_local std::string text;
    return text;
}

template <class Engine>
struct ThroughC {
    static Engine& of(void* table) { return *static_cast<Engine*>(table); }
    static view bytes(const void* start, size_t count) { return view(static_cast<const char*>(start), count); }

    // No exception leaves the interface: it becomes the result of the call.
    template <class F>
    static auto guarded(F&& call) -> decltype(call()) {
        try {
            return call();
        } catch (const Unsupported& what) {
            failure() = what.why;
            return RACE_UNSUPPORTED;
        } catch (const std::exception& error) {
            failure() = error.what();
            return RACE_FAILED;
        }
    }

    static void* open(const race_config* told) {
        Config config{told->dir, told->records, told->key_bytes, told->value_bytes, told->cache_bytes, false};
        auto* engine = new Engine;
        int result = guarded([&] {
            engine->open(config);
            return int(RACE_DONE);
        });
        if (result == RACE_DONE) return engine;
        delete engine;
        return nullptr;
    }
    static int put(void* table, const void* key, size_t key_bytes, const void* value, size_t value_bytes) {
        return guarded([&] {
            of(table).put(bytes(key, key_bytes), bytes(value, value_bytes));
            return int(RACE_DONE);
        });
    }
    static int64_t get(void* table, const void* key, size_t key_bytes, void* value, size_t room_bytes) {
        return guarded([&] {
            int64_t length = RACE_ABSENT;
            of(table).get(bytes(key, key_bytes), [&](view found) {
                length = int64_t(found.size());
                memcpy(value, found.data(), std::min(found.size(), room_bytes));
            });
            return length;
        });
    }
    static int erase(void* table, const void* key, size_t key_bytes) {
        return guarded([&] { return int(of(table).erase(bytes(key, key_bytes)) ? RACE_DONE : RACE_ABSENT); });
    }
    static int scan(void* table, race_each* each, void* context) {
        return guarded([&] {
            of(table).scan([&](view key, view value) {
                each(context, key.data(), key.size(), value.data(), value.size());
            });
            return int(RACE_DONE);
        });
    }
    static int settle(void* table) {
        return guarded([&] {
            if constexpr (requires { of(table).settle(); }) of(table).settle();
            return int(RACE_DONE);
        });
    }
    static int sync(void* table) {
        return guarded([&] {
            of(table).sync();
            return int(RACE_DONE);
        });
    }
    static int close(void* table) {
        return guarded([&] {
            of(table).close();
            delete &of(table);
            return int(RACE_DONE);
        });
    }
    static const char* why() { return failure().c_str(); }

    static constexpr race_engine interface{Engine::persistent, open, put,  get, erase,
                                           scan,               settle, sync, close, why};
};

}  // namespace race

// Gives the engine a symbol that `c/dependent.c` is linked with.
#define RACE_ENGINE(name, ...) \
    extern "C" const race_engine race_engine_##name; \
    const race_engine race_engine_##name = race::ThroughC<__VA_ARGS__>::interface
