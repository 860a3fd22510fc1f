// ndbm(3) as gdbm-compat makes it.
#include <fcntl.h>
extern "C" {
#include <ndbm.h>
}

#include "harness.hpp"

using race::view;

class Ndbm {
public:
    static constexpr bool persistent = true;
    static constexpr bool threads = false;

    void open(const race::Config& config) {
        std::string path = config.dir + "/ndbm";
        db_ = dbm_open(path.data(), O_RDWR | O_CREAT, 0644);
        race::check(db_ != nullptr, "ndbm: open");
    }
    void put(view key, view value) {
        race::check(dbm_store(db_, data(key), data(value), DBM_REPLACE) == 0, "ndbm: store");
    }
    template <class F>
    bool get(view key, F&& found) {
        // The bytes belong to the library until the next call.
        datum value = dbm_fetch(db_, data(key));
        if (value.dptr == nullptr) return false;
        found(view(value.dptr, size_t(value.dsize)));
        return true;
    }
    bool erase(view key) { return dbm_delete(db_, data(key)) == 0; }
    template <class F>
    void scan(F&& each) {
        for (datum key = dbm_firstkey(db_); key.dptr != nullptr; key = dbm_nextkey(db_)) {
            datum value = dbm_fetch(db_, key);
            race::check(value.dptr != nullptr, "ndbm: fetch");
            each(view(key.dptr, size_t(key.dsize)), view(value.dptr, size_t(value.dsize)));
        }
    }
    void put_durable(view key, view value) {
        put(key, value);
        sync();
    }
    // The interface has no call for it.
    void sync() { race::check(fsync(dbm_pagfno(db_)) == 0, "ndbm: fsync"); }
    void close() {
        sync();
        dbm_close(db_);
    }

private:
    static datum data(view bytes) { return {const_cast<char*>(bytes.data()), int(bytes.size())}; }

    DBM* db_ = nullptr;
};

RACE_ENGINE(ndbm, Ndbm);
