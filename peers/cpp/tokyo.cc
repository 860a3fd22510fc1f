// Tokyo Cabinet's hash database.
#include <tchdb.h>

#include "harness.hpp"

using race::view;

class Tokyo {
public:
    static constexpr bool persistent = true;
    // Only with a mutex around all calls, which the other phases would pay for.
    static constexpr bool threads = false;

    void open(const race::Config& config) {
        db_ = tchdbnew();
        // "the number of elements of the bucket array ... from 0.5 to 4 times of the number of all
        // records"; HDBTLARGE for files over 2 GiB; the extra mapped memory holds the file.
        race::check(tchdbtune(db_, int64_t(config.records * 2), -1, -1, HDBTLARGE), "tokyo: tune");
        race::check(tchdbsetxmsiz(db_, int64_t(4) << 30), "tokyo: setxmsiz");
        race::check(tchdbopen(db_, (config.dir + "/tokyo.tch").c_str(), HDBOWRITER | HDBOCREAT), "tokyo: open");
        value_.resize(std::max<size_t>(config.value_bytes, 64));
    }
    void put(view key, view value) {
        race::check(tchdbput(db_, key.data(), int(key.size()), value.data(), int(value.size())), "tokyo: put");
    }
    template <class F>
    bool get(view key, F&& found) {
        int bytes = tchdbget3(db_, key.data(), int(key.size()), value_.data(), int(value_.size()));
        if (bytes < 0) return false;
        found(view(value_.data(), size_t(bytes)));
        return true;
    }
    bool erase(view key) { return tchdbout(db_, key.data(), int(key.size())); }
    template <class F>
    void scan(F&& each) {
        TCXSTR *key = tcxstrnew(), *value = tcxstrnew();
        race::check(tchdbiterinit(db_), "tokyo: iterinit");
        while (tchdbiternext3(db_, key, value)) {
            each(view(static_cast<const char*>(tcxstrptr(key)), size_t(tcxstrsize(key))),
                 view(static_cast<const char*>(tcxstrptr(value)), size_t(tcxstrsize(value))));
        }
        tcxstrdel(key);
        tcxstrdel(value);
    }
    void put_durable(view key, view value) {
        put(key, value);
        sync();
    }
    void sync() { race::check(tchdbsync(db_), "tokyo: sync"); }
    void close() {
        sync();
        race::check(tchdbclose(db_), "tokyo: close");
        tchdbdel(db_);
    }

private:
    TCHDB* db_ = nullptr;
    std::string value_;
};

RACE_ENGINE(tokyo, Tokyo);
