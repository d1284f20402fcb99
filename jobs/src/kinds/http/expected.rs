//! Which statuses mean done.

use std::{fmt, ops::RangeInclusive};

use serde_json::Value;

/// Statuses that mean done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expected(Vec<RangeInclusive<u16>>);

// === impl Expected ===

impl Expected {
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        const FORMS: &str =
            "write a status like 200, a list like [200, 202], or a class like \"2xx\"";
        let one = |value: &Value| match value {
            Value::Number(number) => {
                let status = number.as_u64().and_then(|n| u16::try_from(n).ok());
                let status = status.filter(|n| (200..=599).contains(n));
                status
                    .map(|n| n..=n)
                    .ok_or("no answer has this status; statuses are 200 to 599")
            }
            Value::String(class) => match class.as_bytes() {
                [n @ b'2'..=b'5', b'x' | b'X', b'x' | b'X'] => {
                    let first = u16::from(n - b'0') * 100;
                    Ok(first..=first + 99)
                }
                _ => Err(FORMS),
            },
            _ => Err(FORMS),
        };
        let ranges: Result<Vec<_>, &str> = match value {
            Value::Null => Ok(vec![200..=299]),
            Value::Array(list) if list.is_empty() => Err(FORMS),
            Value::Array(list) => list.iter().map(one).collect(),
            value => one(value).map(|range| vec![range]),
        };
        ranges.map(Self).map_err(str::to_owned)
    }

    pub(super) fn holds(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            if range.start() == range.end() {
                write!(f, "{comma}{}", range.start())?;
            } else {
                write!(f, "{comma}{}xx", range.start() / 100)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expected_statuses_are_read_in_three_forms() {
        let read = |value: Value| Expected::read(&value);
        let all: [(Value, &str, u16, u16); 4] = [
            (Value::Null, "2xx", 204, 304),
            (json!(200), "200", 200, 201),
            (json!([200, 202]), "200, 202", 202, 201),
            (json!("4xx"), "4xx", 404, 200),
        ];
        for (value, shown, inside, outside) in all {
            let expected = read(value).unwrap();
            assert_eq!(expected.to_string(), shown);
            assert!(
                expected.holds(inside) && !expected.holds(outside),
                "{shown}"
            );
        }
        for wrong in [
            json!(99),
            json!(101),
            json!(600),
            json!([]),
            json!("200"),
            json!("1xx"),
            json!({}),
            json!(2.5),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
