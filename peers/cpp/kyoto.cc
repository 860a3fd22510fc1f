// Kyoto Cabinet's HashDB.
#include <kchashdb.h>

#include "harness.hpp"

using race::view;

class Kyoto {
public:
    static constexpr bool persistent = true;
    static constexpr bool threads = true;

    void open(const race::Config& config) {
        // The manual: "tune_buckets ... twice the number of records", "tune_map ... as large as the
        // memory allows", TLINEAR saves the memory of balanced trees, TSMALL has 32-bit addresses.
        db_.tune_options(kyotocabinet::HashDB::TLINEAR);
        db_.tune_buckets(int64_t(config.records * 2));
        db_.tune_map(int64_t(4) << 30);
        race::check(db_.open(config.dir + "/kyoto.kch", kyotocabinet::HashDB::OWRITER | kyotocabinet::HashDB::OCREATE),
                    "kyoto: open");
    }
    void put(view key, view value) {
        race::check(db_.set(key.data(), key.size(), value.data(), value.size()), "kyoto: set");
    }
    template <class F>
    bool get(view key, F&& found) {
        // The visitor sees the value in place, which is quicker than a copy in a new allocation.
        Visitor<F> visitor(found);
        db_.accept(key.data(), key.size(), &visitor, false);
        return visitor.has_value;
    }
    template <class F>
    bool get_shared(view key, F&& found) {
        return get(key, found);
    }
    bool erase(view key) { return db_.remove(key.data(), key.size()); }
    template <class F>
    void scan(F&& each) {
        Scanner<F> scanner(each);
        race::check(db_.iterate(&scanner, false), "kyoto: iterate");
    }
    void put_durable(view key, view value) {
        put(key, value);
        sync();
    }
    void sync() { race::check(db_.synchronize(true), "kyoto: synchronize"); }
    void close() {
        sync();
        race::check(db_.close(), "kyoto: close");
    }

private:
    template <class F>
    struct Visitor : kyotocabinet::DB::Visitor {
        explicit Visitor(F& found) : found(found) {}
        const char* visit_full(const char*, size_t, const char* value, size_t bytes, size_t*) override {
            has_value = true;
            found(view(value, bytes));
            return NOP;
        }
        F& found;
        bool has_value = false;
    };
    template <class F>
    struct Scanner : kyotocabinet::DB::Visitor {
        explicit Scanner(F& each) : each(each) {}
        const char* visit_full(const char* key, size_t key_bytes, const char* value, size_t bytes, size_t*) override {
            each(view(key, key_bytes), view(value, bytes));
            return NOP;
        }
        F& each;
    };
    kyotocabinet::HashDB db_;
};

RACE_ENGINE(kyoto, Kyoto);
