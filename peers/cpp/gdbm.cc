// GNU dbm.
#include <gdbm.h>

#include "harness.hpp"

using race::view;

class Gdbm {
public:
    static constexpr bool persistent = true;
    static constexpr bool threads = false;

    void open(const race::Config& config) {
        // The block size of the file system; the cache of buckets grows by itself since 1.23.
        db_ = gdbm_open((config.dir + "/gdbm.gdbm").c_str(), 0, GDBM_WRCREAT, 0644, nullptr);
        race::check(db_ != nullptr, "gdbm: open");
    }
    // A writer has the file for itself, so programs that share one open it for each call.
    void open_beside(const race::Config& config, race::Beside) { path_ = config.dir + "/gdbm.gdbm"; }
    void put_beside(view key, view value) {
        open_when_free(GDBM_WRITER);
        put(key, value);
        close_free();
    }
    template <class F>
    bool get_beside(view key, F&& found) {
        open_when_free(GDBM_READER);
        bool has_value = get(key, found);
        close_free();
        return has_value;
    }
    void put(view key, view value) {
        race::check(gdbm_store(db_, data(key), data(value), GDBM_REPLACE) == 0, "gdbm: store");
    }
    template <class F>
    bool get(view key, F&& found) {
        datum value = gdbm_fetch(db_, data(key));
        if (value.dptr == nullptr) return false;
        found(view(value.dptr, size_t(value.dsize)));
        free(value.dptr);
        return true;
    }
    bool erase(view key) { return gdbm_delete(db_, data(key)) == 0; }
    template <class F>
    void scan(F&& each) {
        for (datum key = gdbm_firstkey(db_); key.dptr != nullptr;) {
            datum value = gdbm_fetch(db_, key);
            race::check(value.dptr != nullptr, "gdbm: fetch");
            each(view(key.dptr, size_t(key.dsize)), view(value.dptr, size_t(value.dsize)));
            free(value.dptr);
            datum next = gdbm_nextkey(db_, key);
            free(key.dptr);
            key = next;
        }
    }
    void put_durable(view key, view value) {
        put(key, value);
        sync();
    }
    void sync() { race::check(gdbm_sync(db_) == 0, "gdbm: sync"); }
    void close() {
        if (db_ == nullptr) return;
        sync();
        race::check(gdbm_close(db_) == 0, "gdbm: close");
    }

private:
    static datum data(view bytes) { return {const_cast<char*>(bytes.data()), int(bytes.size())}; }

    void open_when_free(int mode) {
        while ((db_ = gdbm_open(path_.c_str(), 0, mode, 0644, nullptr)) == nullptr) {
            bool is_locked = gdbm_errno == GDBM_CANT_BE_WRITER || gdbm_errno == GDBM_CANT_BE_READER;
            race::check(is_locked, "gdbm: open");
            usleep(10);
        }
    }
    void close_free() {
        race::check(gdbm_close(db_) == 0, "gdbm: close");
        db_ = nullptr;
    }

    GDBM_FILE db_ = nullptr;
    std::string path_;
};

RACE_ENGINE(gdbm, Gdbm);
