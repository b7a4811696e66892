//! Dates of the calendar.

use std::time::Duration;

/// A moment in UTC. The local time zone is not looked up: logs and files are read far from where they were written.
#[derive(Debug)]
pub struct Date {
    year: u64,
    month: usize,
    day: u64,
    weekday: usize,
    hour: u64,
    minute: u64,
    second: u64,
    micros: u32,
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// 1 January 1970 was a Thursday.
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

impl Date {
    /// The date of a time since 1970.
    #[must_use]
    pub fn new(since_1970: Duration) -> Self {
        let seconds = since_1970.as_secs();
        let days = seconds / 86_400;
        let mut left = days;
        let mut year = 1970;
        while left >= days_in_year(year) {
            left -= days_in_year(year);
            year += 1;
        }
        let mut month = 0;
        while left >= days_in_month(year, month) {
            left -= days_in_month(year, month);
            month += 1;
        }
        Self {
            year,
            month,
            day: left + 1,
            weekday: (days % 7) as usize,
            hour: seconds / 3600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            micros: since_1970.subsec_micros(),
        }
    }

    /// `20000229123456`.
    #[must_use]
    pub fn compact(&self) -> String {
        let Self { year, month, day, hour, minute, second, .. } = self;
        format!("{year:04}{:02}{day:02}{hour:02}{minute:02}{second:02}", month + 1)
    }

    /// `Feb29 12:34`.
    pub(crate) fn minute(&self) -> String {
        format!("{}{:02} {:02}:{:02}", MONTHS[self.month], self.day, self.hour, self.minute)
    }

    /// `Tue Feb 29 12:34:56 2000`.
    pub(crate) fn ctime(&self) -> String {
        let (weekday, month) = (WEEKDAYS[self.weekday], MONTHS[self.month]);
        format!(
            "{weekday} {month} {:2} {:02}:{:02}:{:02} {}",
            self.day, self.hour, self.minute, self.second, self.year
        )
    }

    /// `2000-02-29T12:34:56,000007+00:00`.
    pub(crate) fn iso(&self) -> String {
        format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02},{:06}+00:00",
            self.year,
            self.month + 1,
            self.day,
            self.hour,
            self.minute,
            self.second,
            self.micros
        )
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in_year(year: u64) -> u64 {
    365 + u64::from(is_leap(year))
}

fn days_in_month(year: u64, month: usize) -> u64 {
    const DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    DAYS[month] + u64::from(month == 1 && is_leap(year))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        // Each checked with `date -u -d @N`.
        for (seconds, iso, ctime) in [
            (0, "1970-01-01T00:00:00,000007+00:00", "Thu Jan  1 00:00:00 1970"),
            (951_827_696, "2000-02-29T12:34:56,000007+00:00", "Tue Feb 29 12:34:56 2000"),
            (1_735_689_599, "2024-12-31T23:59:59,000007+00:00", "Tue Dec 31 23:59:59 2024"),
            (4_107_542_400, "2100-03-01T00:00:00,000007+00:00", "Mon Mar  1 00:00:00 2100"),
        ] {
            let date = Date::new(Duration::new(seconds, 7_000));
            assert_eq!(date.iso(), iso);
            assert_eq!(date.ctime(), ctime);
        }
        let date = Date::new(Duration::from_secs(951_827_696));
        assert_eq!((date.minute(), date.compact()), ("Feb29 12:34".into(), "20000229123456".into()));
    }
}
