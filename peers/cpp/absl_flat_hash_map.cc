// Abseil's flat map.
#include <absl/container/flat_hash_map.h>

#include "map.hpp"

struct Absl {
    // Its default hash function, with the standard's string views for strings too: those of a library
    // built for C++14 are a type of its own.
    struct Hash {
        using is_transparent = void;
        size_t operator()(race::view key) const {
            return absl::Hash<absl::string_view>()(absl::string_view(key.data(), key.size()));
        }
    };
    using Map = absl::flat_hash_map<std::string, std::string, Hash, std::equal_to<>>;
};

RACE_ENGINE(absl_flat_hash_map, race::MapEngine<Absl>);
