// tkrzw's TinyDBM, in memory.
#include <tkrzw_dbm_tiny.h>

#include "tkrzw.hpp"

struct Tiny {
    using Dbm = tkrzw::TinyDBM;
    static constexpr bool persistent = false;

    static std::unique_ptr<Dbm> open(const race::Config& config) {
        return std::make_unique<Dbm>(int64_t(config.records * 2));
    }
};

RACE_ENGINE(tkrzw_tiny, TkrzwEngine<Tiny>);
