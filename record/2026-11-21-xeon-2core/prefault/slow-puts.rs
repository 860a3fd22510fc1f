use std::time::Instant;
use splitpoint::Db;
fn mix(mut z: u64) -> u64 { z = z.wrapping_add(0x9E3779B97F4A7C15); z = (z ^ (z >> 30)).wrapping_mul(0xBF58476D1CE4E5B9); z = (z ^ (z >> 27)).wrapping_mul(0x94D049BB133111EB); z ^ (z >> 31) }
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let n: u64 = args[2].parse().unwrap();
    // control: largest gap of a spinning clock
    let t0 = Instant::now(); let mut last = t0; let mut gaps = vec![];
    while t0.elapsed().as_millis() < 1500 { let now = Instant::now(); let d = (now - last).as_nanos() as u64; if d > 50_000 { gaps.push(d); } last = now; }
    gaps.sort(); gaps.reverse();
    println!("control: {} gaps over 50 us in 1.5 s, largest {:?} us", gaps.len(), gaps.iter().take(5).map(|g| g / 1000).collect::<Vec<_>>());
    let db = if args[1] == "mem" { Db::in_memory().unwrap() } else { let _ = std::fs::remove_file(&args[1]); Db::open(&args[1]).unwrap() };
    let value = vec![7u8; 100];
    let mut slow: Vec<(u64, u64, u64)> = vec![];
    let mut hist = [0u64; 40];
    let start = Instant::now();
    for i in 0..n {
        let mut key = [0u8; 16];
        let h = mix(i);
        for (j, k) in key.iter_mut().enumerate() { *k = b"0123456789abcdef"[(h >> (4 * j) & 15) as usize]; }
        let t = Instant::now();
        db.put(&key, &value).unwrap();
        let d = t.elapsed().as_nanos() as u64;
        hist[63 - (d | 1).leading_zeros() as usize] += 1;
        if d > 200_000 { slow.push((d, i, start.elapsed().as_micros() as u64)); }
    }
    let total = start.elapsed();
    println!("{:.0} ns a put; {} over 0.2 ms", total.as_nanos() as f64 / n as f64, slow.len());
    let sum: u64 = slow.iter().map(|s| s.0).sum();
    println!("slow together {} ms", sum / 1_000_000);
    for (b, c) in hist.iter().enumerate().filter(|(_, c)| **c > 0) { print!("2^{b}:{c} "); }
    println!();
    slow.sort(); slow.reverse();
    // hits
    let m = 1_000_000.min(n);
    let keys: Vec<[u8;16]> = (0..m).map(|j| { let i = mix(j ^ 0x5555) % n; let mut key = [0u8; 16]; let h = mix(i); for (j, k) in key.iter_mut().enumerate() { *k = b"0123456789abcdef"[(h >> (4 * j) & 15) as usize]; } key }).collect();
    let t = Instant::now(); let mut s = 0usize;
    for k in &keys { s += db.get(k).unwrap().unwrap().len(); }
    println!("hit {:.0} ns  ({s})", t.elapsed().as_nanos() as f64 / m as f64);
    for (d, i, at) in slow.iter().take(25) { println!("{:8.3} ms  put {:9}  at {:9.3} ms  log {:6.2} MiB", *d as f64 / 1e6, i, *at as f64 / 1e3, *i as f64 * 128.0 / 1048576.0); }
}
