// tdb, the trivial database of Samba.
#include <fcntl.h>
#include <sys/types.h>
extern "C" {
#include <tdb.h>
}

#include "harness.hpp"

using race::view;

class Tdb {
public:
    static constexpr bool persistent = true;
    static constexpr bool threads = false;

    void open(const race::Config& config) {
        open_file(config);
        lock();
    }
    // Without the one lock, each call locks the chain of its key.
    void open_beside(const race::Config& config, race::Beside) { open_file(config); }
    void put_beside(view key, view value) { put(key, value); }
    template <class F>
    bool get_beside(view key, F&& found) {
        return get(key, found);
    }
    void open_file(const race::Config& config) {
        // tdb_open(3): the hash size is that of the table for ever, so it is one for each record;
        // the Jenkins hash is the better one, which old versions cannot read.
        int flags = TDB_INCOMPATIBLE_HASH;
        tdb_ = tdb_open((config.dir + "/tdb.tdb").c_str(), int(config.records | 1), flags, O_RDWR | O_CREAT, 0644);
        race::check(tdb_ != nullptr, "tdb: open");
    }
    void put(view key, view value) {
        race::check(tdb_store(tdb_, data(key), data(value), TDB_REPLACE) == 0, "tdb: store");
    }
    template <class F>
    bool get(view key, F&& found) {
        // The parser sees the value in place.
        auto parse = [](TDB_DATA, TDB_DATA value, void* found) {
            (*static_cast<std::remove_reference_t<F>*>(found))(text(value));
            return 0;
        };
        return tdb_parse_record(tdb_, data(key), parse, &found) == 0;
    }
    bool erase(view key) { return tdb_delete(tdb_, data(key)) == 0; }
    template <class F>
    void scan(F&& each) {
        auto visit = [](tdb_context*, TDB_DATA key, TDB_DATA value, void* each) {
            (*static_cast<std::remove_reference_t<F>*>(each))(text(key), text(value));
            return 0;
        };
        race::check(tdb_traverse_read(tdb_, visit, &each) >= 0, "tdb: traverse");
    }
    void put_durable(view key, view value) {
        // A transaction takes its own locks.
        if (is_locked_) tdb_unlockall(tdb_), is_locked_ = false;
        race::check(tdb_transaction_start(tdb_) == 0, "tdb: transaction_start");
        put(key, value);
        race::check(tdb_transaction_commit(tdb_) == 0, "tdb: transaction_commit");
    }
    // Records are written through a mapping; fsync writes its pages too.
    void sync() { race::check(fsync(tdb_fd(tdb_)) == 0, "tdb: fsync"); }
    void close() {
        sync();
        race::check(tdb_close(tdb_) == 0, "tdb: close");
    }

private:
    static TDB_DATA data(view bytes) {
        return {reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data())), bytes.size()};
    }
    static view text(TDB_DATA data) { return view(reinterpret_cast<char*>(data.dptr), data.dsize); }
    // One lock for all operations saves two system calls in each.
    void lock() {
        race::check(tdb_lockall(tdb_) == 0, "tdb: lockall");
        is_locked_ = true;
    }

    tdb_context* tdb_ = nullptr;
    bool is_locked_ = false;
};

RACE_ENGINE(tdb, Tdb);
