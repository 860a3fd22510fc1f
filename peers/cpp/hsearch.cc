// hsearch_r(3) of the C library: a table of fixed size, keys that are C strings.
#include <search.h>

#include "harness.hpp"

using race::view;

class Hsearch {
public:
    static constexpr bool persistent = false;

    void open(const race::Config& config) {
        // The manual: no more than that can be stored; a quarter more keeps probes short.
        race::check(hcreate_r(config.records * 5 / 4 + 16, &table_) != 0, "hsearch: hcreate_r");
    }
    void put(view key, view value) {
        // The table keeps pointers, so key and value are copied to where they stay.
        ENTRY entry{const_cast<char*>(terminated(key)), nullptr}, *found;
        if (hsearch_r(entry, FIND, &found, &table_) != 0) {
            free(found->data);
            found->data = copied(value);
            return;
        }
        entry.key = strdup(entry.key);
        entry.data = copied(value);
        race::check(hsearch_r(entry, ENTER, &found, &table_) != 0, "hsearch: the table is full");
    }
    template <class F>
    bool get(view key, F&& found) {
        ENTRY entry{const_cast<char*>(terminated(key)), nullptr}, *result;
        if (hsearch_r(entry, FIND, &result, &table_) == 0) return false;
        uint32_t bytes;
        memcpy(&bytes, result->data, sizeof bytes);
        found(view(static_cast<char*>(result->data) + sizeof bytes, bytes));
        return true;
    }
    bool erase(view) { throw race::Unsupported{"no call to delete"}; }
    template <class F>
    void scan(F&&) {
        throw race::Unsupported{"no call to scan"};
    }
    void sync() {}
    void close() { hdestroy_r(&table_); }

private:
    // Returns the key as a C string. Eight bytes that may hold a zero become ten that do not.
    const char* terminated(view key) {
        if (key.size() == 8) {
            uint64_t bits;
            memcpy(&bits, key.data(), 8);
            for (int i = 0; i < 10; i++) key_[i] = char(0x80 | (bits >> 7 * i & 0x7f));
            key_[10] = 0;
        } else {
            race::check(key.size() < sizeof key_, "hsearch: a long key");
            memcpy(key_, key.data(), key.size());
            key_[key.size()] = 0;
        }
        return key_;
    }
    static void* copied(view value) {
        uint32_t bytes = uint32_t(value.size());
        char* copy = static_cast<char*>(malloc(sizeof bytes + value.size()));
        race::check(copy != nullptr, "hsearch: no memory");
        memcpy(copy, &bytes, sizeof bytes);
        memcpy(copy + sizeof bytes, value.data(), value.size());
        return copy;
    }

    hsearch_data table_{};
    char key_[64];
};

RACE_ENGINE(hsearch, Hsearch);
