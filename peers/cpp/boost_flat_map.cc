// Boost's flat map.
#include <boost/container_hash/hash.hpp>
#include <boost/unordered/unordered_flat_map.hpp>

#include "map.hpp"

struct Boost {
    using Map = boost::unordered_flat_map<std::string, std::string, race::Hash<boost::hash<race::view>>, std::equal_to<>>;
};

RACE_ENGINE(boost_flat_map, race::MapEngine<Boost>);
