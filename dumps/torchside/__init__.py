"""The work behind `live`: between records and live torch objects."""
