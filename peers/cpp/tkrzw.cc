// tkrzw's HashDBM.
#include <tkrzw_dbm_hash.h>

#include "tkrzw.hpp"

struct Hash {
    using Dbm = tkrzw::HashDBM;
    static constexpr bool persistent = true;

    static std::unique_ptr<Dbm> open(const race::Config& config) {
        // "The number of buckets should be ... 1 to 2 times the number of records." Four bytes of
        // offset in units of eight address 32 GiB.
        Dbm::TuningParameters tuning;
        tuning.num_buckets = int64_t(config.records * 2);
        tuning.offset_width = 4;
        tuning.align_pow = 3;
        auto dbm = std::make_unique<Dbm>();
        auto status = dbm->OpenAdvanced(config.dir + "/tkrzw.tkh", true, tkrzw::File::OPEN_DEFAULT, tuning);
        race::check(status == tkrzw::Status::SUCCESS, "tkrzw: OpenAdvanced");
        return dbm;
    }
};

RACE_ENGINE(tkrzw, TkrzwEngine<Hash>);
